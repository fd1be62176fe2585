package provider

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What keeps the daemon from Omni is told in one line that says what to do.
func TestTroubleWithOmniIsWordedForPeople(t *testing.T) {
	t.Parallel()

	const at = "https://omni.example.com"

	// As the SDK does: the first kind of wrapping keeps the status, the second
	// hides it in the text.
	wrapped := func(code codes.Code, message string) error {
		return fmt.Errorf("reading Omni's version: %w", status.Error(code, message))
	}
	hidden := func(code codes.Code, message string) error {
		return errors.New("error creating: owner conflict: " + status.Error(code, message).Error())
	}

	for _, tc := range []struct {
		name      string
		err       error
		key, text string
	}{
		{"ended", nil, "ended", "the link to Omni at https://omni.example.com ended, making a new one"},
		{
			"down", wrapped(codes.Unavailable, "connection error: desc = \"transport: Error while dialing: dial tcp 192.0.2.1:443: connect: connection refused\""), "away",
			"Omni at https://omni.example.com can not be reached: \"transport: Error while dialing: dial tcp 192.0.2.1:443: connect: connection refused\"",
		},
		{
			"slow", wrapped(codes.DeadlineExceeded, "context deadline exceeded"), "away",
			"Omni at https://omni.example.com can not be reached: context deadline exceeded",
		},
		{
			"tls", wrapped(codes.Unavailable, "connection error: desc = \"transport: authentication handshake failed: tls: failed to verify certificate: x509: certificate signed by unknown authority\""), "tls",
			"the certificate of Omni at https://omni.example.com is not trusted: its certificate is signed by an unknown authority: give its CA with OMNI_CA_FILE",
		},
		{
			"key", wrapped(codes.Unauthenticated, "invalid signature"), "key",
			"Omni at https://omni.example.com refuses the service account key (OMNI_SERVICE_ACCOUNT_KEY): renewed, revoked or expired, or the provider was deleted: invalid signature",
		},
		{
			"hidden key", hidden(codes.Unauthenticated, "invalid signature"), "key",
			"Omni at https://omni.example.com refuses the service account key (OMNI_SERVICE_ACCOUNT_KEY): renewed, revoked or expired, or the provider was deleted: invalid signature",
		},
		{
			"unregistered", hidden(codes.PermissionDenied, `infra provider with name "oxide" is not registered in the system`), "unregistered",
			"Omni at https://omni.example.com knows no such provider, create it with `omnictl infraprovider create`: infra provider with name \"oxide\" is not registered in the system",
		},
		{
			"denied", wrapped(codes.PermissionDenied, "only read access is permitted"), "permission",
			"Omni at https://omni.example.com denies the provider's rights: only read access is permitted",
		},
		{
			"hidden denied", hidden(codes.PermissionDenied, "only read access is permitted"), "permission",
			"Omni at https://omni.example.com denies the provider's rights: only read access is permitted",
		},
		{
			"broken stream", errors.New("controller runtime watch error: namespace infra-provider:oxide type X: maximum retry attempts:\nrpc error: code = Unavailable desc = error reading from server: EOF"), "away",
			"Omni at https://omni.example.com can not be reached: error reading from server: EOF",
		},
		{"anything else", errors.New("odd\n  thing"), "other", "the link to Omni at https://omni.example.com ended: odd thing"},
	} {
		if key, text := omniTrouble(at, tc.err); key != tc.key || text != tc.text {
			t.Errorf("%s:\n%s: %s, want\n%s: %s", tc.name, key, text, tc.key, tc.text)
		}
	}
}
