package machineclass

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// certificateList is a list of CAs as they are in DER.
type certificateList [][]byte

const (
	pemBegin = "-----BEGIN "
	pemDash  = "-----"
)

// readCertificates reads PEM. It takes certificates whose line ends are lost,
// which is what a form's one-line field makes of them, and text between them,
// which bundles have; but nothing else that is PEM, such as a private key.
func readCertificates(text string) (certificateList, error) {
	var all certificateList

	for {
		_, after, found := strings.Cut(text, pemBegin)
		if !found {
			return all, nil
		}

		label, body, _ := strings.Cut(after, pemDash)
		if label != "CERTIFICATE" {
			return nil, fmt.Errorf("holds a %s, must hold certificates only", show(label))
		}

		body, rest, ended := strings.Cut(body, "-----END CERTIFICATE-----")
		if !ended {
			return nil, fmt.Errorf("certificate %d has no end", len(all)+1)
		}

		der, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(body), ""))
		if err == nil {
			err = checkCA(der)
		}

		if err != nil {
			return nil, fmt.Errorf("certificate %d: %s", len(all)+1, oneLine(err))
		}

		for i, earlier := range all {
			if bytes.Equal(earlier, der) {
				return nil, fmt.Errorf("certificate %d is the same as certificate %d", len(all)+1, i+1)
			}
		}

		all, text = append(all, der), rest
	}
}

// checkCA refuses a certificate that can not be a root of trust: that of a
// server was most likely taken for its CA's.
func checkCA(der []byte) error {
	c, err := x509.ParseCertificate(der)

	switch {
	case err != nil:
		return err
	case !c.IsCA && !bytes.Equal(c.RawSubject, c.RawIssuer):
		return errors.New("is not that of a CA: give the CA that issued it")
	default:
		return nil
	}
}

// PEM writes the certificates one after another.
func (l certificateList) PEM() string {
	var b strings.Builder

	for _, der := range l {
		b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}

	return b.String()
}

func checkCertificates(text string) string {
	all, err := readCertificates(text)
	if err != nil {
		return err.Error()
	}

	document := (&Class{TrustedCAs: all.PEM()}).TrustedRoots()
	if n := len(document) + joinConfig; n > maxUserData {
		return fmt.Sprintf("%d certificates make user-data of about %d bytes with the join config, over the limit of %d",
			len(all), n, maxUserData)
	}

	return ""
}

// TrustedRoots is the document of a Talos machine config that makes a machine
// trust the class' CAs before it joins, to stand after the join config in the
// user-data; "" for a class without any.
func (c *Class) TrustedRoots() string {
	if c.TrustedCAs == "" {
		return ""
	}

	indented := strings.ReplaceAll(strings.TrimSuffix(c.TrustedCAs, "\n"), "\n", "\n    ")

	return "---\napiVersion: v1alpha1\nkind: TrustedRootsConfig\nname: oxide-machine-class\ncertificates: |\n    " + indented + "\n"
}
