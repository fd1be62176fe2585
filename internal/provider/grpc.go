package provider

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// grpcReason is Omni's own words in one line, without the SDK's wrapping.
func grpcReason(err error) string {
	if s, ok := status.FromError(err); ok && s.Message() != "" {
		return strings.Join(strings.Fields(s.Message()), " ")
	}

	return strings.Join(strings.Fields(err.Error()), " ")
}

// codeOf finds the gRPC code of an error, through the SDK's wrapping where that
// allows it.
func codeOf(err error) codes.Code { return status.Code(err) }
