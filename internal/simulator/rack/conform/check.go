package conform

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

const bulkWriteOperation = "disk_bulk_write_import"

// spec is a document with its operations by method and number of path parts.
type spec struct {
	routes map[routeKey][]operation
}

type routeKey struct {
	method string
	parts  int
}

type operation struct {
	route *routers.Route
	parts []string
	known map[string]bool // query parameters
}

func newSpec(doc *openapi3.T) *spec {
	s := &spec{routes: map[routeKey][]operation{}}

	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			o := operation{
				route: &routers.Route{Spec: doc, Path: path, PathItem: item, Method: method, Operation: op},
				parts: strings.Split(path, "/"), known: map[string]bool{},
			}

			for _, p := range op.Parameters {
				o.known[p.Value.Name] = true
			}

			key := routeKey{method, len(o.parts)}
			s.routes[key] = append(s.routes[key], o)
		}
	}

	return s
}

// find finds the operation of a request; a path without parameters goes before
// one with them.
func (s *spec) find(method, path string) (operation, map[string]string, bool) {
	var (
		best       operation
		bestParams map[string]string
		found      bool
	)

	parts := strings.Split(path, "/")

	for _, o := range s.routes[routeKey{method, len(parts)}] {
		if params, fits := matchPath(o.parts, parts); fits && (!found || len(params) < len(bestParams)) {
			best, bestParams, found = o, params, true
		}
	}

	return best, bestParams, found
}

func matchPath(template, parts []string) (map[string]string, bool) {
	params := map[string]string{}

	for i, t := range template {
		if strings.HasPrefix(t, "{") {
			params[strings.Trim(t, "{}")] = parts[i]
		} else if t != parts[i] {
			return nil, false
		}
	}

	return params, true
}

func (d *document) find(method, path string) (operation, map[string]string, bool) {
	return d.closed.find(method, path)
}

func (d *document) input(op operation, params map[string]string, x Exchange) *openapi3filter.RequestValidationInput {
	r := x.Request.Clone(x.Request.Context())
	body := x.Body

	if r.Header.Get("Content-Type") == "" && !fromDaemon(r) {
		r.Header.Set("Content-Type", "application/json") // the rack takes it for that
	}

	if op.route.Operation.OperationID == bulkWriteOperation {
		body = withoutText(body)
	}

	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))

	return &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: op.route, Options: d.options}
}

func (d *document) checkRequest(op operation, params map[string]string, x Exchange, strict bool) error {
	if strict {
		for k := range x.Request.URL.Query() {
			if !op.known[k] {
				return fmt.Errorf("unknown query parameter %q", k)
			}
		}
	}

	err := openapi3filter.ValidateRequest(x.Request.Context(), d.input(op, params, x))
	if err == nil || strict {
		return joined(err, x.Body)
	}

	// It may be only a key that the document does not have.
	written, err := d.written()
	if err != nil {
		return err
	}

	op, params, _ = written.find(x.Request.Method, x.Request.URL.Path)

	return joined(openapi3filter.ValidateRequest(x.Request.Context(), d.input(op, params, x)), x.Body)
}

func (d *document) checkAnswer(op operation, params map[string]string, x Exchange) error {
	in := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: d.input(op, params, x), Status: x.Status, Header: x.Header, Options: d.options,
	}
	in.SetBodyBytes(x.Answer)

	return joined(openapi3filter.ValidateResponse(x.Request.Context(), in), x.Answer)
}

// joined is one line of all that was found, with the beginning of the body.
func joined(err error, body []byte) error {
	if err == nil {
		return nil
	}

	var multi openapi3.MultiError
	if errors.As(err, &multi) {
		err = errors.Join(multi...)
	}

	text := strings.Join(strings.Fields(err.Error()), " ")

	return fmt.Errorf("%.600s; body: %.300s", text, body)
}

// withoutText is the body of a bulk write with an empty text in place of the
// long one. A body of another form is left as it is.
func withoutText(body []byte) []byte {
	key := []byte(`"base64_encoded_data"`)

	at := bytes.Index(body[:min(len(body), 200)], key)
	if at < 0 {
		at = bytes.LastIndex(body, key)
	}

	if at < 0 {
		return body
	}

	open := bytes.IndexByte(body[at+len(key):], '"')
	if open < 0 || len(bytes.Trim(body[at+len(key):][:open], " \t\r\n")) != 1 {
		return body
	}

	open += at + len(key) + 1

	end := bytes.IndexByte(body[open:], '"')
	if end < 0 || bytes.IndexByte(body[open:open+end], '\\') >= 0 {
		return body
	}

	return append(bytes.Clone(body[:open]), body[open+end:]...)
}
