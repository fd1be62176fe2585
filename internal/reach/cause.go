package reach

import (
	"regexp"
	"strings"
)

const (
	proxyRefuses     = "the proxy refuses the connection:"
	proxyUnreachable = "the proxy can not be reached"
)

// cause is one way in which a connection fails, told by Go's text: Omni's and
// the rack's SDKs leave nothing else of an error.
type cause struct {
	kind    Kind
	pattern *regexp.Regexp
	// words may use the pattern's groups; OPTION is the endpoint's option for CAs.
	words string
}

// Kind tells causes apart.
type Kind string

// The kinds of causes.
const (
	KindNone        Kind = ""
	KindCertificate Kind = "certificate"
	KindProxy       Kind = "proxy"
	KindNoTLS       Kind = "no tls"
)

func causes() []cause {
	return []cause{
		{KindProxy, regexp.MustCompile(proxyRefuses + ` (\S+) to (\S+): (\d+[^"\n]*)`), "the proxy $1 refuses the connection: $3"},
		{KindProxy, regexp.MustCompile(`failed to do connect handshake, response: "HTTP/\S+ (\d+ ?[\w ]*)`), "the proxy refuses the connection: $1"},
		{KindProxy, regexp.MustCompile(`proxyconnect tcp: ([^"\n]+)`), proxyUnreachable + ": $1"},
		{KindProxy, regexp.MustCompile(proxyUnreachable + `: ([^"\n]+)`), proxyUnreachable + ": $1"},
		{
			KindCertificate, regexp.MustCompile(`x509: certificate signed by unknown authority`),
			"its certificate is signed by an unknown authority: give its CA with OPTION",
		},
		{KindCertificate, regexp.MustCompile(`x509: certificate is valid for ([^"\n]+), not ([^\s"]+)`), "its certificate is for $1, not for $2"},
		{
			KindCertificate, regexp.MustCompile(`x509: certificate is not valid for any names, but wanted to match ([^\s"]+)`),
			"its certificate is for no name, and not for $1",
		},
		{
			KindCertificate, regexp.MustCompile(`x509: cannot validate certificate for ([^\s"]+) because it doesn't contain any IP SANs`),
			"its certificate is for names, not for the address $1",
		},
		{
			KindCertificate, regexp.MustCompile(`x509: certificate has expired or is not yet valid: current time \S+ is after ([^\s"]+)`),
			"its certificate has expired at $1",
		},
		{
			KindCertificate, regexp.MustCompile(`x509: certificate has expired or is not yet valid: current time \S+ is before ([^\s"]+)`),
			"its certificate is not valid before $1: is the clock here right?",
		},
		{KindCertificate, regexp.MustCompile(`x509: ([^"\n]+)`), "its certificate is not good: $1"},
		{
			KindNoTLS, regexp.MustCompile(`first record does not look like a TLS handshake|server gave HTTP response to HTTPS client`),
			"it does not speak TLS there: use http:// or another port",
		},
	}
}

// Cause finds in the text of an error why TLS or a proxy has failed, in words for
// people who know what was to be reached. option is how CAs are given for that
// endpoint. The kind is KindNone and the words are empty if it is something else.
func Cause(text, option string) (Kind, string) {
	for _, c := range causes() {
		m := c.pattern.FindStringSubmatchIndex(text)
		if m == nil {
			continue
		}

		words := string(c.pattern.ExpandString(nil, c.words, text, m))

		return c.kind, strings.TrimSpace(strings.ReplaceAll(words, "OPTION", option))
	}

	return KindNone, ""
}
