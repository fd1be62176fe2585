package rack

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
)

const (
	maxName        = 63
	maxHostname    = 253
	maxDescription = 512 // width of the database column, in characters
	maxImageText   = 64  // width of an image's os and version columns
)

// isUUID says whether a selector is taken as an ID and not as a name.
func isUUID(s string) bool {
	return uuid.Validate(s) == nil
}

// canonicalID is the lower-case dashed form of a UUID.
func canonicalID(s string) string {
	id, err := uuid.Parse(s)
	if err != nil {
		return s
	}

	return id.String()
}

// checkName applies the rack's rules for names of all objects.
func checkName(s string) error {
	switch {
	case s == "":
		return errors.New("name requires at least one character")
	case len(s) > maxName:
		return fmt.Errorf("name may contain at most %d characters", maxName)
	case s[0] < 'a' || s[0] > 'z':
		return errors.New("name must begin with an ASCII lowercase character")
	case strings.HasSuffix(s, "-"):
		return errors.New(`name cannot end with "-"`)
	}

	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' {
			return fmt.Errorf("name contains invalid character: %q (allowed characters are lowercase ASCII, digits, and \"-\")", r)
		}
	}

	if isUUID(s) {
		return errors.New("name cannot be a UUID to avoid ambiguity with IDs")
	}

	return nil
}

// checkNameOrID accepts what can be either.
func checkNameOrID(s string) error {
	if isUUID(s) {
		return nil
	}

	return checkName(s)
}

// checkHostname applies the rack's rules for host names, which are looser than
// DNS: labels have no length limit of their own.
func checkHostname(s string) error {
	if s == "" || len(s) > maxHostname {
		return fmt.Errorf("hostname must be between 1 and %d characters", maxHostname)
	}

	for label := range strings.SplitSeq(s, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
			return errors.New("hostname labels may not be empty, nor begin or end with a hyphen")
		}

		for _, r := range label {
			if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' {
				return fmt.Errorf("hostname contains invalid character %q", r)
			}
		}
	}

	return nil
}

// fitsColumn answers the bare 500 that the real rack gives for text that only
// its database refuses.
func fitsColumn(s string, limit int) error {
	if utf8.RuneCountInString(s) > limit {
		return internal()
	}

	return nil
}
