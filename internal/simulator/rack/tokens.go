package rack

import (
	"time"

	"github.com/google/uuid"
)

const kindToken = "device-access-token"

// tokenEntry makes a token something that can be listed.
type tokenEntry struct {
	meta
	expires time.Time
}

type tokenView struct {
	ID          string     `json:"id"`
	TimeCreated time.Time  `json:"time_created"`
	TimeExpires *time.Time `json:"time_expires"`
}

func viewToken(t *tokenEntry) any {
	v := tokenView{ID: t.id, TimeCreated: t.created}
	if !t.expires.IsZero() {
		v.TimeExpires = &t.expires
	}

	return v
}

func (t *Token) expired(now time.Time) bool { return !t.Expires.IsZero() && now.After(t.Expires) }

// identify gives a token its ID; one that replaces another of its value has
// that one's.
func (t *Token) identify(now time.Time, old *Token) {
	t.id, t.made = uuid.NewString(), now.UTC()
	if old != nil {
		t.id, t.made = old.id, old.made
	}
}

// tokenList shows the caller's tokens that are still good: never their values.
func (s *Server) tokenList(c *call) (answer, error) {
	pg, err := c.pageByID()
	if err != nil {
		return answer{}, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	var own []*tokenEntry

	for _, t := range s.tokens {
		if t.User == c.token.User && !t.expired(s.clock.Now()) {
			own = append(own, &tokenEntry{meta{id: t.id, created: t.made}, t.Expires.UTC()})
		}
	}

	return list(pg, own, viewToken)
}

// tokenDelete ends one of the caller's tokens, if need be the very one that the
// call came with.
func (s *Server) tokenDelete(c *call) (answer, error) {
	id, err := c.pathID("token_id")
	if err != nil {
		return answer{}, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	for value, t := range s.tokens {
		if t.id == id && t.User == c.token.User {
			delete(s.tokens, value)

			return noContent(), nil
		}
	}

	return answer{}, notFound(kindToken, id)
}

// pathID is an ID in the path, where no name will do.
func (c *call) pathID(key string) (string, error) {
	s := c.path(key)

	if !isUUID(s) {
		return "", badParse("bad parameter in URL path: UUID parsing failed: %q", s)
	}

	return canonicalID(s), nil
}
