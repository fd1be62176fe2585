package guest

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net"
	"net/url"

	"github.com/blang/semver/v4"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/link"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/talosimage"
)

// session is a booted machine that knows where to join.
type session struct {
	*machine

	image    talosimage.Descriptor
	platform string
	key      string // public key of the tunnel, new at each boot
	join     joinAddress

	stage    link.Stage
	hostname string
}

// joinAddress is where and with what to join.
type joinAddress struct {
	host        string // host:port of the SideroLink API
	credentials credentials.TransportCredentials
	token       string
	tunnel      bool
}

// start finds the machine's config: its own on the disk first, then user-data.
// Without a place to join it returns nil: such a machine waits for ever.
func (m *machine) start(image talosimage.Descriptor) (*session, error) {
	version, err := semver.ParseTolerant(image.Talos)
	if err != nil {
		return nil, fmt.Errorf("reading the image's version: %w", err)
	}

	c, err := m.config(version)
	if err != nil {
		return nil, err
	}

	join, ok, err := findJoin(c, image)
	if err != nil || !ok {
		return nil, err
	}

	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}

	s := &session{
		machine: m, image: image, platform: m.platform(version, image), join: join,
		key:   base64.StdEncoding.EncodeToString(private.PublicKey().Bytes()),
		stage: link.StageMaintenance, hostname: m.hostname(c),
	}

	if c != nil && c.CompleteForBoot() {
		s.stage = link.StageRunning
	}

	return s, nil
}

// config is the stored machine config or what user-data holds, nil if neither.
// A complete config from user-data is stored, as Talos does.
func (m *machine) config(version semver.Version) (config.Provider, error) {
	if stored := m.hw.Store.Config(); stored != nil {
		return loadConfig(stored)
	}

	data, err := readUserData(version, m.hw.CIData)
	if err != nil {
		return nil, err
	}

	c, err := userConfig(data)
	if err != nil || c == nil {
		return nil, err
	}

	if c.CompleteForBoot() {
		encoded, err := c.Bytes()
		if err != nil {
			return nil, fmt.Errorf("storing the config: %w", err)
		}

		m.hw.Store.setConfig(encoded)
	}

	return c, nil
}

// findJoin reads the SideroLink address from the config, else from the kernel's
// command line.
func findJoin(c config.Provider, image talosimage.Descriptor) (joinAddress, bool, error) {
	var address *url.URL

	if c != nil && c.SideroLink() != nil {
		address = c.SideroLink().APIUrl()
	}

	if address == nil {
		text := kernelArg(image, "siderolink.api")
		if text == "" {
			return joinAddress{}, false, nil
		}

		var err error
		if address, err = url.Parse(text); err != nil {
			return joinAddress{}, false, fmt.Errorf("reading siderolink.api: %w", err)
		}
	}

	j := joinAddress{
		host: address.Host, token: address.Query().Get("jointoken"), tunnel: address.Query().Get("grpc_tunnel") == "true",
	}

	switch address.Scheme {
	case "grpc":
		j.credentials = insecure.NewCredentials()
	case "https":
		roots, err := trustedRoots(c)
		if err != nil {
			return joinAddress{}, false, err
		}

		j.credentials = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots})
	default:
		return joinAddress{}, false, fmt.Errorf("SideroLink address has scheme %q, neither grpc nor https", address.Scheme)
	}

	if address.Port() == "" {
		j.host = net.JoinHostPort(address.Hostname(), "443")
	}

	return j, true, nil
}

// trustedRoots are the system's certificates and those that the config adds.
func trustedRoots(c config.Provider) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("reading the system's certificates: %w", err)
	}

	if c != nil && c.TrustedRoots() != nil {
		for _, extra := range c.TrustedRoots().ExtraTrustedRootCertificates() {
			pool.AppendCertsFromPEM([]byte(extra))
		}
	}

	return pool, nil
}
