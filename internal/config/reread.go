package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/pelletier/go-toml"
)

// Access is how the daemon is known at the rack.
type Access struct {
	Host  string // URL with scheme
	Token Secret
	// Expires is when the Oxide CLI noted that the token expires, zero if it did
	// not.
	Expires time.Time
}

// The options whose values may change under the daemon.
const (
	omniKeyFlag    = "omni-service-account-key"
	oxideTokenFlag = "oxide-token"
)

// fileOf is where the file of a secret is kept.
func (c *Config) fileOf(flag string) *string {
	switch flag {
	case omniKeyFlag:
		return &c.Omni.KeyFile
	case oxideTokenFlag:
		return &c.Oxide.TokenFile
	case factoryPassword:
		return &c.Factory.PasswordFile
	case factoryToken:
		return &c.Factory.TokenFile
	default:
		panic("no file is kept for the secret " + flag)
	}
}

// secret is what the option's file holds now, or what it was set to otherwise.
func (c *Config) secret(flag string, loaded Secret) (Secret, error) {
	path := *c.fileOf(flag)
	if path == "" {
		return loaded, nil
	}

	text, err := readSecret(path)

	return Secret(text), err
}

// ReadOmniKey reads Omni's key again. It may be no key at all: JudgeOmniKey tells.
func (c *Config) ReadOmniKey() (Secret, error) { return c.secret(omniKeyFlag, c.Omni.Key) }

// JudgeOmniKey demands a key of this provider that is valid at the time, and
// answers when it expires, zero for never. No error has any part of the key in
// it.
func (c *Config) JudgeOmniKey(key Secret, now time.Time) (expiry time.Time, err error) {
	name, expiry, err := decodeKey(key.Reveal(), now)
	if err == nil {
		err = ownKey(name, c.Provider.ID)
	}

	return expiry, err
}

// OxideFile is the file that the rack's token comes from, empty for none.
func (c *Config) OxideFile() string {
	if c.Oxide.Profile != "" {
		path, _ := c.Oxide.credentials()

		return path
	}

	return c.Oxide.TokenFile
}

// ReadOxide reads again how the daemon is known at the rack: the token's file, or
// the profile of the Oxide CLI.
func (c *Config) ReadOxide() (Access, error) {
	if c.Oxide.Profile != "" {
		return c.Oxide.readProfile()
	}

	token, err := c.secret(oxideTokenFlag, c.Oxide.Token)

	return Access{Host: c.Oxide.Host, Token: token}, err
}

// FactoryHeader answers what the factory is asked with at each moment, nil
// without credentials. Files that can not be read change nothing.
func (c *Config) FactoryHeader() func() http.Header {
	var mu sync.Mutex

	now := c.Factory

	return func() http.Header {
		mu.Lock()
		defer mu.Unlock()

		for flag, field := range map[string]*Secret{factoryPassword: &now.Password, factoryToken: &now.Token} {
			if text, err := c.secret(flag, *field); err == nil {
				*field = text
			}
		}

		return now.Header()
	}
}

// credentials is where the Oxide CLI keeps the tokens of its profiles.
func (o Oxide) credentials() (string, error) {
	dir := o.ConfigDir
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}

		dir = filepath.Join(home, ".config", "oxide")
	}

	return filepath.Join(dir, "credentials.toml"), nil
}

// errNoProfile hides what a parser says: it quotes from the file, which holds
// tokens.
var errNoProfile = errors.New("no such profile with a host and a token that can be read")

// readProfile reads what the Oxide client would, and when the token expires.
func (o Oxide) readProfile() (Access, error) {
	path, err := o.credentials()
	if err != nil {
		return Access{}, err
	}

	content, err := os.ReadFile(path)

	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Access{}, fmt.Errorf("%s can not be found", path)
	case err != nil:
		return Access{}, fmt.Errorf("reading %s: %w", path, cause(err))
	}

	tree, err := toml.LoadBytes(content)
	if err != nil {
		return Access{}, errNoProfile
	}

	profile, ok := tree.Get("profile." + o.Profile).(*toml.Tree)
	if !ok {
		return Access{}, errNoProfile
	}

	host, _ := profile.Get("host").(string)
	token, _ := profile.Get("token").(string)

	var c Config
	if token == "" || readOxideHost(&c, host) != nil {
		return Access{}, errNoProfile
	}

	return Access{Host: c.Oxide.Host, Token: Secret(token), Expires: noted(profile.Get("time_expires"))}, nil
}

// noted is a time as the CLI writes it, a string or one of TOML's own.
func noted(v any) time.Time {
	switch t := v.(type) {
	case time.Time:
		return t.UTC()
	case string:
		if at, err := time.Parse(time.RFC3339, t); err == nil {
			return at.UTC()
		}
	}

	return time.Time{}
}
