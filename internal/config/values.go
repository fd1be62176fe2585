package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"
)

var dnsLabel = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// parseURL checks a URL without showing it: somebody may have put a secret
// into the wrong variable.
func parseURL(text string, schemes ...string) (*url.URL, error) {
	u, err := url.Parse(text)

	switch {
	case err != nil || strings.ContainsAny(text, " \t\r\n"):
		return nil, errors.New("is no URL")
	case !slices.Contains(schemes, u.Scheme) || u.Opaque != "":
		return nil, fmt.Errorf("must begin with %s", anyOf(schemes))
	case u.Hostname() == "":
		return nil, errors.New("has no host")
	case u.User != nil:
		return nil, errors.New("must not have a user or a password in it")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return nil, errors.New("must end after the host or path, without ? and #")
	}

	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, errors.New("has no port of 1 to 65535")
		}
	}

	return u, nil
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}

	return u.Hostname()
}

// loopback says that what is sent to the host does not leave this one.
func loopback(host string) bool {
	ip := net.ParseIP(host)

	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func anyOf(schemes []string) string {
	last := len(schemes) - 1

	return strings.Join(schemes[:last], "://, ") + ":// or " + schemes[last] + "://"
}

// readOmniEndpoint is stricter than Omni's client, which takes a URL without
// a scheme for a strange host, ignores a path, and can not add the port to an
// IPv6 address.
func readOmniEndpoint(c *Config, text string) error {
	u, err := parseURL(text, "https", "http", "grpc")

	switch {
	case err != nil:
		return err
	case strings.Trim(u.Path, "/") != "":
		return errors.New("must not have a path")
	case u.Port() == "" && strings.Contains(u.Hostname(), ":"):
		return errors.New("needs a port after an IPv6 address")
	}

	u.Path, u.RawPath = "", ""
	c.Omni.Endpoint = u.String()

	return nil
}

// readOxideHost adds the scheme as the Oxide client does. That client loses a
// path, so there must be none.
func readOxideHost(c *Config, text string) error {
	if strings.HasPrefix(text, "oxide-token-") {
		return errors.New("is a token, not a host")
	}

	if !strings.Contains(text, "://") {
		text = "https://" + text
	}

	u, err := parseURL(text, "https", "http")

	switch {
	case err != nil:
		return err
	case strings.Trim(u.Path, "/") != "":
		return errors.New("must not have a path")
	}

	u.Path, u.RawPath = "", ""
	c.Oxide.Host = u.String()

	return nil
}

func readFactoryURL(c *Config, text string) error {
	u, err := parseURL(text, "https", "http")
	if err != nil {
		return err
	}

	c.Factory.URL = strings.TrimRight(u.String(), "/")

	return nil
}

func readProviderID(c *Config, text string) error {
	if !dnsLabel.MatchString(text) {
		return fmt.Errorf("%s is no DNS label (1 to 63 of a-z, 0-9 and -, neither first nor last a -)", shown(text))
	}

	c.Provider.ID = text

	return nil
}

func readProfile(c *Config, text string) error {
	// The client looks a profile up by a dotted path.
	if strings.ContainsAny(text, ". \t\n\"'[]") {
		return fmt.Errorf("%s is no name of a profile that the Oxide client finds: it must have no dot, space, quote or bracket", shown(text))
	}

	c.Oxide.Profile = text

	return nil
}

func readHealthAddress(c *Config, text string) error {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}

	if err != nil {
		return fmt.Errorf("%s is not HOST:PORT or :PORT", shown(text))
	}

	c.HealthAddress = text

	return nil
}

func readProfileAddress(c *Config, text string) error {
	host, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}

	if err != nil || !loopback(host) {
		return fmt.Errorf("%s is not HOST:PORT with an address of this host alone, such as 127.0.0.1:6060", shown(text))
	}

	c.ProfileAddress = text

	return nil
}

func readLogLevel(c *Config, text string) error {
	for _, l := range []zapcore.Level{zapcore.DebugLevel, zapcore.InfoLevel, zapcore.WarnLevel, zapcore.ErrorLevel} {
		if strings.EqualFold(text, l.String()) {
			c.Log.Level = l

			return nil
		}
	}

	return fmt.Errorf("%s is not one of debug, info, warn, error", shown(text))
}

func readLogFormat(c *Config, text string) error {
	if text != FormatJSON && text != FormatConsole {
		return fmt.Errorf("%s is neither json nor console", shown(text))
	}

	c.Log.Format = text

	return nil
}

func readJanitor(c *Config, text string) error {
	switch text {
	case JanitorOff, JanitorDryRun, JanitorOn:
		c.Janitor = text

		return nil
	default:
		return fmt.Errorf("%s is none of off, dry-run and on", shown(text))
	}
}

func oneLine(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, text string) error {
		if strings.ContainsAny(text, "\r\n") || len(text) > 256 {
			return errors.New("must be one line of at most 256 bytes")
		}

		*field(c) = text

		return nil
	}
}

func number(least, most int, field func(*Config) *int) func(*Config, string) error {
	return func(c *Config, text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			return fmt.Errorf("%s is not a whole number of %d to %d", shown(text), least, most)
		}

		*field(c) = n

		return nil
	}
}

func duration(field func(*Config) *time.Duration) func(*Config, string) error {
	return func(c *Config, text string) error {
		d, err := time.ParseDuration(text)
		if err != nil || d < time.Second || d > 24*time.Hour {
			return fmt.Errorf("%s is not a time of 1s to 24h, such as 90s or 2m", shown(text))
		}

		*field(c) = d

		return nil
	}
}

// shown quotes a wrong value, unless it is so long that it may be a secret in
// the wrong place.
func shown(text string) string {
	if len(text) > 64 || strings.HasPrefix(text, "oxide-token-") {
		return "the value (not shown)"
	}

	return strconv.Quote(text)
}
