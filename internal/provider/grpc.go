package provider

import (
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// grpcReason is Omni's own words in one line, without the SDK's wrapping. Some
// of the SDK's errors hide the status in their text only.
func grpcReason(err error) string {
	text := err.Error()

	if s, ok := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err); ok && s.GRPCStatus().Message() != "" {
		text = s.GRPCStatus().Message()
	}

	if _, after, found := strings.Cut(text, " desc = "); found {
		text = after
	}

	return strings.Join(strings.Fields(text), " ")
}

// codeOf finds the gRPC code of an error, through the SDK's wrapping where that
// allows it.
func codeOf(err error) codes.Code { return status.Code(err) }
