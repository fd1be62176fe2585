package config

import (
	"fmt"
	"os"
	"strings"
)

// oxideAccess makes sure that there is one way to the rack. The Oxide client
// reads the same variables itself and lets the profile win silently, or mixes
// a host from one place with a token from another.
func oxideAccess(c *Config, wrong map[string]bool) error {
	const host, token, profile, dir = "oxide-host", "oxide-token", "oxide-profile", "oxide-config-dir"

	// An option that is set wrongly counts as set: it has its own line.
	set := map[string]bool{
		host:    c.Oxide.Host != "" || wrong[host],
		token:   c.Oxide.Token != "" || wrong[token],
		profile: c.Oxide.Profile != "" || wrong[profile],
	}

	var have, lack []string

	for _, flag := range []string{host, token} {
		if set[flag] {
			have = append(have, flag)
		} else {
			lack = append(lack, flag)
		}
	}

	switch {
	case set[profile] && len(have) > 0:
		return fmt.Errorf("%s: is set beside %s: set either the profile, or host and token", labels(profile), labels(have...))
	case set[profile] && wrong[profile]:
		return nil
	case set[profile]:
		return profileExists(c.Oxide, labels(profile))
	case len(have) == 0:
		return fmt.Errorf("%s: are not set, and neither is %s: set host and token, or a profile", labels(lack...), labels(profile))
	case len(lack) > 0:
		return fmt.Errorf("%s: is not set, host and token go together", labels(lack...))
	case c.Oxide.ConfigDir != "":
		return fmt.Errorf("%s: is set without a profile (%s)", labels(dir), labels(profile))
	default:
		return nil
	}
}

func labels(flags ...string) string {
	texts := make([]string, len(flags))
	for i, flag := range flags {
		texts[i] = find(flag).label()
	}

	return strings.Join(texts, " and ")
}

// profileExists reads the profile, which may change later.
func profileExists(o Oxide, label string) error {
	path, err := o.credentials()
	if err != nil {
		return fmt.Errorf("%s: looking for the Oxide CLI's files: %w", label, err)
	}

	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("%s: looking for the Oxide CLI's credentials: %w", label, err)
	}

	if _, err := o.readProfile(); err != nil {
		return fmt.Errorf("%s: %s has no profile %q with a host and a token that can be read", label, path, o.Profile)
	}

	return nil
}
