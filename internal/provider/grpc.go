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

// codeOf finds the gRPC code of an error, also where the SDK's wrapping leaves
// it in the text only.
func codeOf(err error) codes.Code {
	if code := status.Code(err); code != codes.Unknown {
		return code
	}

	_, after, _ := strings.Cut(err.Error(), "rpc error: code = ")
	name, _, _ := strings.Cut(after, " ")

	for code := codes.OK + 1; code <= codes.Unauthenticated; code++ {
		if code.String() == name {
			return code
		}
	}

	return codes.Unknown
}
