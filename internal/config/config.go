// Package config turns flags, environment variables and secret files into one
// checked Config.
//
// Each option is one entry of one table (options.go): its flag, its variable,
// its help and how its text is read. The command's help and the reference in
// the README come from that table too.
//
// A flag wins over a variable. A secret never stands on the command line: it
// comes from its variable, or from a file that the variable with the suffix
// _FILE or the flag with the suffix -file names. An empty variable is one
// that is not set.
package config

import (
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"
)

// Config is what the daemon runs with. Everything that can be judged without
// asking Omni or the rack has been.
type Config struct {
	Omni     Omni
	Provider Provider
	Oxide    Oxide
	Factory  Factory
	Images   Images
	Lease    Lease
	Log      Log
	// CA is trusted at all three endpoints.
	CA CA

	// Concurrency is how many requests are worked on at once, creations and
	// teardowns together.
	Concurrency int
	// MaxCreates is how many instances and disks are created in the rack at
	// once; a create holds a worker for as long as the rack takes.
	MaxCreates int
	// RackCalls and RackChanges bound the calls to the rack at once, and those of
	// them that change something.
	RackCalls, RackChanges int
	// SettleTime is how long the outcome of a call without an answer counts
	// as unknown.
	SettleTime time.Duration
	// ScratchGrace is how long the scratch objects of an importing process
	// that shows no sign of life are left alone.
	ScratchGrace time.Duration
	// Janitor is what is done about orphans: JanitorOff, JanitorDryRun or
	// JanitorOn.
	Janitor string
	// JanitorGrace is how long something must have been an orphan.
	JanitorGrace time.Duration
	// JoinTime is how long after its start a machine may be unknown to Omni.
	JoinTime time.Duration
	// ShutdownGrace is how long the end may take after SIGTERM.
	ShutdownGrace time.Duration
	// HealthAddress is what /healthz and /readyz are served on, empty for not
	// at all.
	HealthAddress string
	// ProfileAddress is what Go's profiles are served on, empty for not at all.
	ProfileAddress string
}

// Omni is where Omni is and who we are there.
type Omni struct {
	Endpoint string // URL with scheme https, or http or grpc without TLS
	Key      Secret // service-account key of the provider, as omnictl printed it
	// KeyFile is where Key comes from, empty without a file.
	KeyFile string
	// KeyExpiry is when the key expires, zero for never.
	KeyExpiry time.Time

	Certificates Certificates
}

// Provider is how Omni knows and shows us.
type Provider struct {
	ID          string // a DNS label
	Name        string
	Description string
}

// Oxide says how to reach the silo: by host and token, or by a profile of the
// Oxide CLI. One of the two is set, never both.
type Oxide struct {
	Host      string // URL with scheme
	Token     Secret
	TokenFile string // where Token comes from, empty without a file
	Profile   string
	ConfigDir string // of the CLI, empty for its own place

	Certificates Certificates
}

// Factory is the image factory.
type Factory struct {
	URL string // empty for the one that Omni names

	// Token, or Username and Password, are how the daemon is known there.
	Username        string
	Password, Token Secret
	// PasswordFile and TokenFile are where they come from, empty without a file.
	PasswordFile, TokenFile string

	Certificates Certificates
}

// Log is how the daemon logs.
type Log struct {
	Level  zapcore.Level
	Format string // FormatJSON or FormatConsole
}

// What the janitor may do.
const (
	JanitorOff    = "off"
	JanitorDryRun = "dry-run"
	JanitorOn     = "on"
)

// The formats of the log.
const (
	FormatJSON    = "json"
	FormatConsole = "console"
)

const redacted = "[redacted]"

// Secret is a text that no formatting, logging or encoding shows.
type Secret string

// Reveal returns the text itself.
func (s Secret) Reveal() string { return string(s) }

// String tells only whether there is a text.
func (s Secret) String() string {
	if s == "" {
		return ""
	}

	return redacted
}

// Format writes what String returns, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// MarshalText encodes what String returns.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// String shows all options on one line, secrets redacted.
func (c Config) String() string {
	var parts []string

	for _, o := range options() {
		parts = append(parts, fmt.Sprintf("%s=%q", o.flag, o.shown(&c)))
	}

	return strings.Join(parts, " ")
}

// MarshalLogObject logs all options, secrets redacted.
func (c Config) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	for _, o := range options() {
		enc.AddString(o.flag, o.shown(&c))
	}

	if !c.Omni.KeyExpiry.IsZero() {
		enc.AddTime("omni-key-expiry", c.Omni.KeyExpiry)
	}

	return nil
}
