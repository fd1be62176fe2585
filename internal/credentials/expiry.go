package credentials

import (
	"fmt"
	"time"
)

// The times before its end at which a credential is warned of.
const (
	Early = 30 * 24 * time.Hour
	Late  = 7 * 24 * time.Hour
)

// Warning is what to say of a credential that expires at the time, zero for never.
// The key changes when it is to be said again; both are empty while there is
// nothing to say. what begins the sentence, renew ends it.
func Warning(what string, expires, now time.Time, renew string) (key, text string) {
	left := expires.Sub(now)

	switch {
	case expires.IsZero() || left > Early:
		return "", ""
	case left <= 0:
		return "expired", fmt.Sprintf("%s has expired on %s: %s", what, at(expires), renew)
	case left <= Late:
		key = "late"
	default:
		key = "early"
	}

	return key, fmt.Sprintf("%s expires in %s, on %s: %s", what, span(left), at(expires), renew)
}

func at(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }

func span(d time.Duration) string {
	switch days, hours := int(d/(24*time.Hour)), int(d/time.Hour); {
	case days > 1:
		return fmt.Sprintf("%d days", days)
	case hours > 1:
		return fmt.Sprintf("%d hours", hours)
	default:
		return "less than two hours"
	}
}
