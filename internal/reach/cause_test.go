package reach

import "testing"

func TestCausesAreToldInOneLine(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]struct {
		kind  Kind
		words string
	}{
		`transport: authentication handshake failed: tls: failed to verify certificate: x509: certificate signed by unknown authority`: {
			KindCertificate, "its certificate is signed by an unknown authority: give its CA with X_CA_FILE",
		},
		`failed to do request: Get "https://a/v1/ping": tls: failed to verify certificate: x509: certificate is valid for b, c, not a`: {
			KindCertificate, "its certificate is for b, c, not for a",
		},
		`x509: cannot validate certificate for 10.0.0.1 because it doesn't contain any IP SANs`: {
			KindCertificate, "its certificate is for names, not for the address 10.0.0.1",
		},
		`x509: certificate has expired or is not yet valid: current time 2026-12-01T00:00:00Z is after 2026-11-01T00:00:00Z`: {
			KindCertificate, "its certificate has expired at 2026-11-01T00:00:00Z",
		},
		`x509: certificate has expired or is not yet valid: current time 2026-12-01T00:00:00Z is before 2027-01-01T00:00:00Z`: {
			KindCertificate, "its certificate is not valid before 2027-01-01T00:00:00Z: is the clock here right?",
		},
		`x509: certificate relies on legacy Common Name field, use SANs instead`: {
			KindCertificate, "its certificate is not good: certificate relies on legacy Common Name field, use SANs instead",
		},
		`Get "https://rack.test/": proxyconnect tcp: dial tcp 127.0.0.1:3128: connect: connection refused`: {
			KindProxy, "the proxy can not be reached: dial tcp 127.0.0.1:3128: connect: connection refused",
		},
		`Get "https://rack.test/": ` + (&refusal{"p:3128", "rack.test:443", "403 Forbidden"}).Error(): {
			KindProxy, "the proxy p:3128 refuses the connection: 403 Forbidden",
		},
		`transport: Error while dialing: failed to do connect handshake, response: "HTTP/1.1 407 Proxy Authentication Required\r\n"`: {
			KindProxy, "the proxy refuses the connection: 407 Proxy Authentication Required",
		},
		`tls: first record does not look like a TLS handshake`: {KindNoTLS, "it does not speak TLS there: use http:// or another port"},
		`dial tcp 127.0.0.1:1: connect: connection refused`:    {KindNone, ""},
	} {
		if kind, words := Cause(text, "X_CA_FILE"); kind != want.kind || words != want.words {
			t.Errorf("%s\n got %q, %q\nwant %q, %q", text, kind, words, want.kind, want.words)
		}
	}
}
