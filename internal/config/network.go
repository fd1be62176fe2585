package config

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/reach"
)

// CA is a file of CA certificates.
type CA struct {
	Path string
	// PEM is what was in it.
	PEM string `json:"-"`
}

// String is the path.
func (c *CA) String() string { return c.Path }

// Certificates are whose certificates are trusted at one endpoint, beside those
// that the system trusts.
type Certificates struct {
	CA CA
	// Insecure trusts any.
	Insecure bool
}

// Trust is what is trusted at an endpoint, with the CAs for all.
func (c *Config) Trust(own Certificates) reach.Trust {
	t := reach.Trust{Insecure: own.Insecure}

	for _, ca := range []CA{c.CA, own.CA} {
		if ca.Path != "" {
			t.PEM = append(t.PEM, []byte(ca.PEM))
		}
	}

	return t
}

// Header is what the factory is asked with, nil without credentials.
func (f Factory) Header() http.Header {
	req := http.Request{Header: http.Header{}}

	switch {
	case f.Token != "":
		req.Header.Set("Authorization", "Bearer "+f.Token.Reveal())
	case f.Username != "":
		req.SetBasicAuth(f.Username, f.Password.Reveal())
	default:
		return nil
	}

	return req.Header
}

// Insecure is what is not safe in the configuration, a line for each: nothing
// that a default makes.
func (c *Config) Insecure() []string {
	var lines []string

	for _, e := range []struct {
		flag string
		on   bool
		name string
	}{
		{"omni-insecure", c.Omni.Certificates.Insecure, "Omni"},
		{"oxide-insecure", c.Oxide.Certificates.Insecure, "the rack"},
		{"image-factory-insecure", c.Factory.Certificates.Insecure, "the image factory"},
	} {
		if e.on {
			lines = append(lines, fmt.Sprintf("%s is on: whoever is between the daemon and %s can take its place", find(e.flag).env, e.name))
		}
	}

	if u, err := url.Parse(c.Oxide.Host); err == nil && u.Scheme == "http" && !loopback(u.Hostname()) {
		lines = append(lines, "OXIDE_HOST begins with http://: the rack's token can be read on its way")
	}

	return lines
}

const caHelp = "File with PEM certificates of CAs to trust for %s, beside the system's"

func networkOptions() []option {
	certificates := func(prefix, env, who, more string, of func(*Config) *Certificates) []option {
		return []option{
			caOption(prefix+"-ca-file", env+"_CA_FILE", who, func(c *Config) *CA { return &of(c).CA }),
			{
				flag: prefix + "-insecure", env: env + "_INSECURE", kind: "on|off", def: "off", required: true,
				help:  "on: take any certificate of " + who + " for good" + more + "; only to find out what is wrong",
				field: func(c *Config) any { return (*onSwitch)(&of(c).Insecure) },
				read: func(c *Config, text string) error {
					on, err := onOff(text)
					of(c).Insecure = on

					return err
				},
			},
		}
	}

	options := []option{caOption("ca-file", "CA_FILE", "Omni, the rack and the image factory", func(c *Config) *CA { return &c.CA })}
	options = append(options, certificates("omni", "OMNI", "Omni", "", func(c *Config) *Certificates { return &c.Omni.Certificates })...)
	options = append(options, certificates("oxide", "OXIDE", "the rack", "", func(c *Config) *Certificates { return &c.Oxide.Certificates })...)
	options = append(options, certificates("image-factory", "IMAGE_FACTORY", "the image factory", ", and send it credentials without TLS", func(c *Config) *Certificates { return &c.Factory.Certificates })...)

	options = append(options,
		option{
			flag: "rack-calls", env: "RACK_CALLS", kind: "number", def: "16", required: true,
			help:  "Calls to the rack at once, 1 to 200, without the writes of uploads",
			field: func(c *Config) any { return &c.RackCalls },
			read:  number(1, 200, func(c *Config) *int { return &c.RackCalls }),
		},
		option{
			flag: "rack-changes", env: "RACK_CHANGES", kind: "number", def: "8", required: true,
			help:  "How many of them may change something, 1 to 200",
			field: func(c *Config) any { return &c.RackChanges },
			read:  number(1, 200, func(c *Config) *int { return &c.RackChanges }),
		},
	)

	return append(options,
		option{
			flag: factoryUsername, env: "IMAGE_FACTORY_USERNAME", kind: "name",
			help:  "User at the image factory, with a password",
			field: func(c *Config) any { return &c.Factory.Username },
			read:  readUsername,
		},
		option{
			flag: factoryPassword, env: "IMAGE_FACTORY_PASSWORD", kind: "password", secret: true,
			help:  "Password at the image factory",
			field: func(c *Config) any { return &c.Factory.Password },
		},
		option{
			flag: factoryToken, env: "IMAGE_FACTORY_TOKEN", kind: "token", secret: true,
			help:  "Bearer token for the image factory, instead of user and password",
			field: func(c *Config) any { return &c.Factory.Token },
		},
	)
}

const (
	factoryUsername = "image-factory-username"
	factoryPassword = "image-factory-password"
	factoryToken    = "image-factory-token"
)

func caOption(flag, env, who string, of func(*Config) *CA) option {
	return option{
		flag: flag, env: env, kind: "file",
		help:  fmt.Sprintf(caHelp, who),
		field: func(c *Config) any { return of(c) },
		read: func(c *Config, text string) error {
			ca, err := readCA(text)
			*of(c) = ca

			return err
		},
	}
}

// maxCA is more than all CAs of a system.
const maxCA = 4 << 20

// readCA demands that all in the file can be used: a CA that is dropped without a
// word is looked for at the wrong end.
func readCA(path string) (CA, error) {
	info, err := os.Stat(path)

	switch {
	case errors.Is(err, fs.ErrNotExist):
		return CA{}, fmt.Errorf("%s can not be found", shown(path))
	case err != nil:
		return CA{}, fmt.Errorf("reading %s: %w", shown(path), cause(err))
	case info.IsDir() || info.Size() > maxCA:
		return CA{}, fmt.Errorf("%s is no file of certificates", shown(path))
	}

	content, err := os.ReadFile(path)
	if err != nil {
		return CA{}, fmt.Errorf("reading %s: %w", shown(path), cause(err))
	}

	found := 0

	for rest := content; ; found++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			if bytes.Contains(rest, []byte("-----BEGIN")) {
				return CA{}, fmt.Errorf("%s has something after certificate %d that is no PEM", shown(path), found)
			}

			break
		}

		if block.Type != "CERTIFICATE" {
			return CA{}, fmt.Errorf("%s has a %s in it, only certificates belong there", shown(path), strings.ToLower(block.Type))
		}

		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return CA{}, fmt.Errorf("%s: certificate %d can not be read: %w", shown(path), found+1, err)
		}
	}

	if found == 0 {
		return CA{}, fmt.Errorf("%s has no PEM certificate in it", shown(path))
	}

	return CA{Path: path, PEM: string(content)}, nil
}

// factoryAccess makes sure that there is one way to be known at the factory.
func factoryAccess(c *Config, wrong map[string]bool) error {
	if wrong[factoryUsername] || wrong[factoryPassword] || wrong[factoryToken] {
		return nil
	}

	f := c.Factory

	switch {
	case f.Token != "" && (f.Username != "" || f.Password != ""):
		return fmt.Errorf("%s: is set beside %s: set either the token, or user and password",
			labels(factoryToken), labels(factoryUsername, factoryPassword))
	case f.Username != "" && f.Password == "":
		return fmt.Errorf("%s: is not set, user and password go together", labels(factoryPassword))
	case f.Username == "" && f.Password != "":
		return fmt.Errorf("%s: is not set, user and password go together", labels(factoryUsername))
	case f.Header() != nil && readable(&f):
		return fmt.Errorf("%s: begins with http://, where the credentials for the factory could be read on their way: use https://, or allow it with %s",
			labels("image-factory-url"), labels("image-factory-insecure"))
	default:
		return nil
	}
}

// readable says whether what is sent to the factory can be read on its way.
func readable(f *Factory) bool {
	return strings.HasPrefix(f.URL, "http://") && !f.Certificates.Insecure && !loopback(hostOf(f.URL))
}

func readUsername(c *Config, text string) error {
	if strings.ContainsAny(text, ":\r\n\t") || len(text) > 256 {
		return errors.New("must be at most 256 bytes without a colon or a line break")
	}

	c.Factory.Username = text

	return nil
}

// onSwitch shows what is off by default as its option has it.
type onSwitch bool

func (s *onSwitch) String() string {
	if *s {
		return "on"
	}

	return "off"
}

func onOff(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "on", "true":
		return true, nil
	case "off", "false":
		return false, nil
	default:
		return false, fmt.Errorf("%s is neither on nor off", shown(text))
	}
}
