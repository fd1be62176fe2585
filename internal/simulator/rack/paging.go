package rack

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
)

const (
	defaultPage = 100
	maxPage     = 10_000
)

type sortMode string

const (
	byNameAscending  sortMode = "name_ascending"
	byNameDescending sortMode = "name_descending"
	byIDAscending    sortMode = "id_ascending"
)

// pageToken carries the marker and everything else that selects a list: the
// other parameters of a later page may be left out.
type pageToken struct {
	Version string            `json:"v"`
	Sort    sortMode          `json:"sort"`
	Last    string            `json:"last"`
	Select  map[string]string `json:"select"`
}

type page struct {
	limit    int
	sort     sortMode
	after    string
	started  bool // there is a marker
	selector map[string]string
}

// resultsPage is a list on the wire.
type resultsPage struct {
	Items    []any   `json:"items"`
	NextPage *string `json:"next_page"`
}

// page reads the paging parameters. On a later page the selectors named in
// keys (such as project) come out of the token.
func (c *call) page(keys ...string) (page, error) {
	p := page{limit: defaultPage, sort: byNameAscending, selector: map[string]string{}}

	if s := c.query.Get("limit"); c.query.Has("limit") {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil || n == 0 {
			return p, badParse("unable to parse query string: limit: invalid value %q, expected a nonzero u32", s)
		}

		p.limit = int(min(n, maxPage))
	}

	if c.query.Has("page_token") {
		if err := p.resume(c.query.Get("page_token")); err != nil {
			return p, err
		}

		return p, c.goesOn(p, keys)
	}

	if s := c.query.Get("sort_by"); c.query.Has("sort_by") {
		p.sort = sortMode(s)
		if p.sort != byNameAscending && p.sort != byNameDescending && p.sort != byIDAscending {
			return p, badParse("unable to parse query string: sort_by: unknown variant `%s`", s)
		}
	}

	for _, k := range keys {
		if c.query.Has(k) {
			p.selector[k] = c.query.Get(k)
		}
	}

	return p, nil
}

// goesOn lets a later page repeat what selected the first, but not change it.
func (c *call) goesOn(p page, keys []string) error {
	for _, k := range append([]string{"sort_by"}, keys...) {
		had := p.selector[k]
		if k == "sort_by" {
			had = string(p.sort)
		}

		if c.query.Has(k) && c.query.Get(k) != had {
			return badParse("unable to parse query string: %s may not change while page_token goes on with a list", k)
		}
	}

	return nil
}

func (p *page) resume(token string) error {
	raw, err := base64.URLEncoding.DecodeString(token)
	if err != nil {
		return badParse("unable to parse query string: failed to parse pagination token: %v", err)
	}

	var t pageToken
	if err := json.Unmarshal(raw, &t); err != nil || t.Version != "v1" {
		return badParse("unable to parse query string: failed to parse pagination token: corrupted token")
	}

	p.sort, p.after, p.started, p.selector = t.Sort, t.Last, true, t.Select

	return nil
}

// listIn answers one page of a scope's objects.
func listIn[T entity](p page, t *table[T], scope string, view func(T) any) (answer, error) {
	return answerPage(p, t.ordered[scope].after(p), view)
}

// list answers one page of items that are in no order and few.
func list[T entity](p page, items []T, view func(T) any) (answer, error) {
	ix := &index[T]{}
	for _, x := range items {
		ix.add(x)
	}

	return answerPage(p, ix.after(p), view)
}

// answerPage is a page on the wire. As on the rack, a page that has items has a
// token for the next one, so the end of a list shows as an empty page.
func answerPage[T entity](p page, items []T, view func(T) any) (answer, error) {
	out := resultsPage{Items: make([]any, 0, len(items))}
	for _, x := range items {
		out.Items = append(out.Items, view(x))
	}

	if len(items) == 0 {
		return ok(out), nil
	}

	last := items[len(items)-1].head()
	t := pageToken{Version: "v1", Sort: p.sort, Last: last.name, Select: p.selector}

	if p.sort == byIDAscending {
		t.Last = last.id
	}

	raw, err := json.Marshal(t)
	if err != nil {
		return answer{}, internal()
	}

	s := base64.URLEncoding.EncodeToString(raw)
	out.NextPage = &s

	return ok(out), nil
}
