package machineclass_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"go.yaml.in/yaml/v4"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
)

// authority is the certificate of a new CA, in PEM; filler makes it longer.
func authority(t *testing.T, name string, filler int) string {
	t.Helper()

	return issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name, Organization: []string{strings.Repeat("o", filler)}}, IsCA: true, BasicConstraintsValid: true,
	}, nil)
}

// issue signs a certificate, by itself without an issuer's name.
func issue(t *testing.T, template *x509.Certificate, issuer *pkix.Name) string {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template.SerialNumber = big.NewInt(1)
	template.NotAfter = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

	parent := template
	if issuer != nil {
		parent = &x509.Certificate{Subject: *issuer}
	}

	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}

	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// withCAs is a class that trusts what a text holds.
func withCAs(t *testing.T, text string) string {
	t.Helper()

	class, err := yaml.Marshal(map[string]string{"project": "talos", "trusted_cas": text})
	if err != nil {
		t.Fatal(err)
	}

	return string(class)
}

// Invariant: however a form or a bundle hands certificates in, the class holds
// them in the one form that Talos reads, and nothing else of the text.
func TestCertificatesAreReadHoweverTheyAreWritten(t *testing.T) {
	t.Parallel()

	one, two := authority(t, "one", 1), authority(t, "two", 1)

	for name, text := range map[string]string{
		"as they are":                 one + two,
		"on one line, ends lost":      strings.ReplaceAll(one+two, "\n", ""),
		"on one line, ends as spaces": strings.ReplaceAll(one+two, "\n", " "),
		"other line ends":             strings.ReplaceAll(one+two, "\n", "\r\n"),
		"a bundle with comments":      "# Issuer: one\n" + one + "\n\n# Issuer: two\n" + two + "\n",
	} {
		class, err := machineclass.Parse(withCAs(t, text))
		if err != nil || class.TrustedCAs != one+two {
			t.Errorf("%s: %v, %q", name, err, class.TrustedCAs)
		}

		if err = validate(compiled(t), withCAs(t, text)); err != nil {
			t.Errorf("%s: the schema says: %v", name, err)
		}
	}
}

// Invariant: what can not be a root of trust is refused, and a secret that was
// pasted in is not repeated.
func TestWrongCertificates(t *testing.T) {
	t.Parallel()

	ca := authority(t, "ca", 1)
	server := issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "omni"}}, &pkix.Name{CommonName: "ca"})
	key := "-----BEGIN EC PRIVATE KEY-----\nc2VjcmV0\n-----END EC PRIVATE KEY-----\n"

	for name, test := range map[string]struct{ text, want string }{
		"twice":                  {ca + ca, "trusted_cas: certificate 2 is the same as certificate 1"},
		"a server's":             {server, "trusted_cas: certificate 1: is not that of a CA: give the CA that issued it"},
		"a key too":              {ca + key, `trusted_cas: holds a "EC PRIVATE KEY", must hold certificates only`},
		"a key only":             {key, "trusted_cas: must be PEM: -----BEGIN CERTIFICATE----- and so on"},
		"cut":                    {ca + ca[:len(ca)/2], "trusted_cas: certificate 2 has no end"},
		"more than fits":         {strings.Repeat("x", 40) + authority(t, "big", 24000), ""},
		"a self-signed server's": {issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "omni"}}, nil), "accepted"},
	} {
		_, err := machineclass.Parse(withCAs(t, test.text))

		switch {
		case test.want == "accepted":
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case err == nil:
			t.Errorf("%s: accepted", name)
		case test.want == "" && !strings.HasSuffix(err.Error(), ", over the limit of 32768"):
			t.Errorf("%s: %v", name, err)
		case test.want != "" && err.Error() != test.want:
			t.Errorf("%s:\n got %v\nwant %s", name, err, test.want)
		case strings.Contains(err.Error(), "c2VjcmV0"):
			t.Errorf("%s: tells the secret", name)
		}
	}
}

// Invariant: user-data with a class' CAs at the limit fits into what the rack
// takes, beside a join config of the room that is kept for it.
func TestUserDataWithCAsFits(t *testing.T) {
	t.Parallel()

	const limit, room = 32 << 10, 1 << 10

	fits, tooLong := 0, 0

	for filler := 10000; filler < 12000; filler += 50 {
		class, err := machineclass.Parse(withCAs(t, authority(t, "ca", filler)))
		if err != nil {
			tooLong++

			continue
		}

		fits++

		if n := len(class.TrustedRoots()); n+room > limit {
			t.Errorf("%d bytes are accepted", n)
		}

		if tooLong > 0 {
			t.Errorf("a longer one fits again at %d", filler)
		}
	}

	if fits == 0 || tooLong == 0 {
		t.Errorf("%d fit and %d do not", fits, tooLong)
	}
}

// Invariant: Talos reads the document, beside a join config, as what it is.
func TestTalosReadsTheTrustedRoots(t *testing.T) {
	t.Parallel()

	const join = "apiVersion: v1alpha1\nkind: SideroLinkConfig\napiUrl: https://omni.example.com?jointoken=x\n"

	ca := authority(t, "ca", 1)

	class, err := machineclass.Parse(withCAs(t, ca))
	if err != nil {
		t.Fatal(err)
	}

	config, err := configloader.NewFromBytes([]byte(join + class.TrustedRoots()))
	if err != nil {
		t.Fatal(err)
	}

	if roots := config.TrustedRoots().ExtraTrustedRootCertificates(); len(roots) != 1 || !strings.Contains(roots[0], ca) {
		t.Errorf("roots: %q", roots)
	}

	if config.SideroLink() == nil {
		t.Error("the join config is lost")
	}

	var none machineclass.Class
	if text := none.TrustedRoots(); text != "" {
		t.Errorf("without CAs: %q", text)
	}
}
