package rack

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
)

// access is where a client's calls go, and by which token. Calls that begin later
// take what was set last.
type access struct {
	base  *url.URL
	token string
}

func newAccess(host, token string) (*access, error) {
	base, err := url.Parse(host)
	if err != nil || base.Host == "" {
		return nil, errors.New("the rack's address is no URL with a host")
	}

	if token == "" {
		return nil, errors.New("the rack's token is empty")
	}

	return &access{base, token}, nil
}

// apply has the request go there.
func (a *access) apply(req *http.Request) *http.Request {
	req = req.Clone(req.Context())
	req.URL.Scheme, req.URL.Host, req.Host = a.base.Scheme, a.base.Host, ""
	req.Header.Set("Authorization", "Bearer "+a.token)

	return req
}

// As is another client of the same kind: with the host and the token, and with
// connections of its own.
func (c *Client) As(host, token string) (*Client, error) {
	cfg := c.cfg
	cfg.Host, cfg.Token = host, token

	return New(cfg)
}

// Become has this client, and all that were made from it by Behind, make its calls
// as the other one does. Calls in flight end as they began.
func (c *Client) Become(other *Client) {
	if c.who.Swap(other.who.Load()).base.Host != other.who.Load().base.Host {
		c.Close()
	}
}

// Host is the URL of the rack's API, ending in a slash.
func (c *Client) Host() string { return strings.TrimRight(c.who.Load().base.String(), "/") + "/" }

// ListTokenExpiries are the times at which the tokens of this client's user expire,
// zero for those that do not. Which of them is this client's can not be told.
func (c *Client) ListTokenExpiries(ctx context.Context) ([]time.Time, error) {
	tokens, err := listAll(ctx, c, "listing the user's tokens", func(ctx context.Context, limit *int, token string) ([]oxide.DeviceAccessToken, string, error) {
		p, err := c.api.CurrentUserAccessTokenList(ctx, oxide.CurrentUserAccessTokenListParams{Limit: limit, PageToken: token, SortBy: oxide.IdSortModeIdAscending})
		if err != nil {
			return nil, "", err
		}

		return p.Items, p.NextPage, nil
	})
	if err != nil {
		return nil, err
	}

	expiries := make([]time.Time, len(tokens))

	for i, t := range tokens {
		if t.TimeExpires != nil {
			expiries[i] = *t.TimeExpires
		}
	}

	return expiries, nil
}

// stay follows no redirect: a rack has none, and a token belongs to its host.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
