package machineclass

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"unicode/utf8"
)

// form is what a text must look like. Its patterns stand in the schema too, so
// they are such that Go, JavaScript and JSON schema mean the same by them.
type form struct {
	pattern string                   // of the whole text, without anchors
	not     string                   // of a whole text that pattern takes and that is wrong, or ""
	message string                   // what the text must be
	most    int                      // characters, or 0
	check   func(text string) string // what is wrong that no pattern can say, or ""
	hide    bool                     // do not repeat the text: it is long

	good, bad *regexp.Regexp
}

func newForm(f form) *form {
	f.good = regexp.MustCompile(anchored(f.pattern))
	if f.not != "" {
		f.bad = regexp.MustCompile(anchored(f.not))
	}

	return &f
}

func anchored(pattern string) string { return `^(` + pattern + `)$` }

// wrong says what is wrong with a text, or "".
func (f *form) wrong(text string) string {
	if n := utf8.RuneCountInString(text); f.most > 0 && n > f.most {
		return fmt.Sprintf("has %d characters, over the limit of %d", n, f.most)
	}

	if !f.good.MatchString(text) || f.bad != nil && f.bad.MatchString(text) {
		return f.message
	}

	if f.check != nil {
		return f.check(text)
	}

	return ""
}

const (
	namePattern     = `[a-z]([a-z0-9-]{0,61}[a-z0-9])?`
	uuidPattern     = `[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`
	undashedPattern = `[0-9a-fA-F]{32}`
	nameRule        = "1 to 63 of a-z, 0-9 and -, a letter first, no - last"

	v4Part       = `(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])`
	v4Pattern    = v4Part + `(\.` + v4Part + `){3}`
	v6Pattern    = `[0-9a-fA-F]{0,4}(:[0-9a-fA-F]{0,4}){2,7}` // only roughly: the check is stricter
	labelPart    = `[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?`
	labelPrefix  = `[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?`
	printable    = `[^\x00-\x1f\x7f]`
	certificates = `[\s\S]*-----BEGIN CERTIFICATE-----[\s\S]*`
)

var (
	nameForm = newForm(form{
		pattern: namePattern, not: undashedPattern + `|` + uuidPattern, message: "must be a name: " + nameRule,
	})
	nameOrIDForm = newForm(form{
		pattern: namePattern + `|` + uuidPattern, not: undashedPattern, message: "must be a name (" + nameRule + ") or an ID",
	})
	diskNameForm = newForm(form{
		pattern: `[a-z]([a-z0-9-]{0,7}[a-z0-9])?`, not: `boot`,
		message: "must be 1 to 9 of a-z, 0-9 and -, a letter first, no - last, and not boot",
	})
	descriptionForm = newForm(form{
		pattern: `[^\x00-\x1f\x7f\[\]]*`, most: maxDescription, message: "must be one line without [ and ]",
	})
	addressForm = newForm(form{
		pattern: v4Pattern + `|` + v6Pattern, message: "must be an IPv4 or IPv6 address", check: checkAddress,
	})
	networkForm = newForm(form{
		pattern: `(` + v4Pattern + `|` + v6Pattern + `)/[0-9]{1,3}`, message: "must be a network such as 10.1.0.0/16", check: checkNetwork,
	})
	labelForm = newForm(form{
		pattern: `(` + labelPrefix + `/)?` + labelPart + `=(` + labelPart + `)?`,
		message: "must be key=value as Kubernetes takes them, such as example.com/tier=gold", check: checkLabel,
	})
	labelValueForm = newForm(form{
		pattern: labelPart, message: "must be a label's value: 1 to 63 of letters, digits, -, _ and ., a letter or digit first and last",
	})
	extensionForm = newForm(form{
		pattern: `[a-z0-9]([a-z0-9-]*[a-z0-9])?/[a-z0-9]([a-z0-9._-]*[a-z0-9])?`, most: maxExtensionName,
		message: "must be vendor/name without a version, such as siderolabs/iscsi-tools",
	})
	kernelArgForm = newForm(form{
		pattern: `[!#-~]+`, most: maxKernelArg, check: checkKernelArg,
		message: `must be one argument of printable ASCII without spaces and "`,
	})
	certificatesForm = newForm(form{
		pattern: certificates, message: "must be PEM: -----BEGIN CERTIFICATE----- and so on", check: checkCertificates, hide: true,
	})
)

func checkAddress(text string) string {
	a, err := netip.ParseAddr(text)

	switch {
	case err != nil:
		return "must be an IPv4 or IPv6 address"
	case a.Is4In6():
		return "must be written as the IPv4 address " + a.Unmap().String()
	case a.IsUnspecified(), a.IsLoopback(), a.IsMulticast(), a.IsLinkLocalUnicast():
		return "is no address that a subnet has"
	default:
		return ""
	}
}

func checkNetwork(text string) string {
	p, err := netip.ParsePrefix(text)

	switch {
	case err != nil:
		return "must be a network such as 10.1.0.0/16"
	case p != p.Masked():
		return "has bits beyond its prefix, the network is " + p.Masked().String()
	default:
		return ""
	}
}

// ofTheSystem are the kernel arguments that make a machine find its platform
// and Omni.
var ofTheSystem = []string{
	"siderolink.api", "talos.events.sink", "talos.logging.kernel", "talos.platform", "talos.config", "talos.config.inline",
}

func checkKernelArg(text string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(text, "-"), "=")

	for _, s := range ofTheSystem {
		if name == s {
			return "is set by Omni and the image"
		}
	}

	return ""
}
