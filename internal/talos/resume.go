package talos

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

const (
	// resumeTries bounds how often the rest of a file is asked for without a
	// byte of it coming, resumePause is the pause before the first time. Together
	// they last half a minute; after that the whole import begins anew later.
	resumeTries = 5
	resumePause = time.Second
	// maxResumeWait is the longest wish of a busy factory that is obeyed while
	// the disk in the rack waits for the rest.
	maxResumeWait = 2 * time.Minute
)

// validator is what If-Range needs to know that a file is still the same: its
// strong ETag, or else its date. It is "" when the server takes no ranges.
func validator(header http.Header) string {
	if !strings.EqualFold(strings.TrimSpace(header.Get("Accept-Ranges")), "bytes") {
		return ""
	}

	if tag := header.Get("ETag"); strings.HasPrefix(tag, `"`) {
		return tag
	}

	return header.Get("Last-Modified")
}

// again asks for the rest of a file whose download broke off, at the address of
// this moment. Where ranges are not offered the file is read from its beginning
// and thrown away up to where it broke off, if it is the same so far: that costs
// the link, and spares the rack a second disk.
func (f *Factory) again(ctx context.Context, image ImageURL, form, same string, s *source) (*answer, error) {
	if image.Again != nil {
		var err error
		if image, err = image.Again(ctx); err != nil {
			return nil, err
		}
	}

	done := s.done.Load()
	extra := http.Header{}

	if same != "" && done > 0 {
		extra.Set("Range", fmt.Sprintf("bytes=%d-", done))
		extra.Set("If-Range", same)
	}

	about, resp, a, err := f.request(ctx, image, form, extra) //nolint:bodyclose // the answer closes it
	if err != nil {
		return nil, err
	}

	if err := f.goesOn(about, resp, a, s, extra.Get("Range") != ""); err != nil {
		a.close()

		return nil, err
	}

	return a, nil
}

// goesOn brings an answer to where the download broke off, or tells why it can
// not be.
func (f *Factory) goesOn(about FactoryError, resp *http.Response, a *answer, s *source, ranged bool) error {
	switch {
	case resp.StatusCode == http.StatusPartialContent && ranged:
		return s.fits(resp, s.done.Load())
	case resp.StatusCode == http.StatusOK && s.total >= 0 && resp.ContentLength >= 0 && resp.ContentLength != s.total:
		return errChanged
	case resp.StatusCode == http.StatusOK:
		return s.skip(a)
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable, resp.StatusCode == http.StatusPreconditionFailed:
		return errChanged
	}

	return f.refusal(about, resp, a)
}

// fits holds a partial answer against what was asked for.
func (s *source) fits(resp *http.Response, from int64) error {
	var first, last, total int64

	// The total may be "*"; then the end alone must fit.
	n, err := fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes %d-%d/%d", &first, &last, &total)
	if n < 2 || first != from || n == 3 && s.total >= 0 && total != s.total || s.total >= 0 && last != s.total-1 {
		return fmt.Errorf("%w: asked for byte %d on and got %q", errChanged, from, resp.Header.Get("Content-Range"))
	}

	if n < 3 && s.total < 0 && err != nil {
		return fmt.Errorf("%w: the answer does not say where it ends", errChanged)
	}

	return nil
}
