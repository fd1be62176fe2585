package talos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/reach"
)

const (
	// defaultHeaderTimeout is how long the factory may build before it answers:
	// it sends no byte until the image is made, and gives a build 20 minutes.
	defaultHeaderTimeout = 20 * time.Minute
	defaultIdleTimeout   = time.Minute
	maxRedirects         = 5
	// maxRetryAfter bounds what a factory or a proxy may ask for.
	maxRetryAfter = time.Hour
)

// forms are the compressions to ask for, the one that decodes fastest first.
var forms = []string{".raw.zst", ".raw.xz"}

var schematicID = regexp.MustCompile(`^[0-9A-Za-z]{1,128}$`)

// FactoryConfig configures a Factory. The zero value works.
type FactoryConfig struct {
	// HTTP is the client to use; its redirect policy and timeout are replaced.
	HTTP      *http.Client
	UserAgent string
	// HeaderTimeout is how long to wait for an answer, 20 minutes if zero.
	HeaderTimeout time.Duration
	// IdleTimeout is how long an answer may bring no byte, 1 minute if zero.
	IdleTimeout time.Duration
	// ResumePause is the pause before the rest of a download that broke off is
	// asked for, doubled each time nothing comes of it; 1 s if zero. Negative
	// never asks.
	ResumePause time.Duration
	// Now is the clock for Retry-After dates, time.Now if nil.
	Now func() time.Time
}

// Factory downloads disk images. It may be used from several goroutines.
type Factory struct {
	config FactoryConfig
	client http.Client
}

// ImageURL says which image to download and from where.
type ImageURL struct {
	// Base is the factory's address, scheme://host[:port][/prefix].
	Base      string
	Schematic string
	// Talos is the version, with or without v.
	Talos string
	// Arch is amd64 or arm64.
	Arch       string
	SecureBoot bool
	// Header holds credentials for the factory. It is not sent to other hosts.
	Header http.Header
	// Again answers the same image at the address and with the credentials of a
	// later moment. Nil means that they stay.
	Again func(ctx context.Context) (ImageURL, error)
}

// NewFactory makes a Factory.
func NewFactory(config FactoryConfig) *Factory {
	if config.HeaderTimeout == 0 {
		config.HeaderTimeout = defaultHeaderTimeout
	}

	if config.IdleTimeout == 0 {
		config.IdleTimeout = defaultIdleTimeout
	}

	if config.ResumePause == 0 {
		config.ResumePause = resumePause
	}

	if config.Now == nil {
		config.Now = time.Now
	}

	f := &Factory{config: config}

	if config.HTTP != nil {
		f.client = *config.HTTP
	}

	if f.client.Transport == nil {
		if base, ok := http.DefaultTransport.(*http.Transport); ok {
			f.client.Transport = base.Clone()
		}
	}

	// Over HTTP/2 what the decoder has not asked for yet would wait in the
	// process, up to 4 MiB of it; over HTTP/1.1 it waits in the kernel, which also
	// finds out how much the link needs.
	if t, ok := f.client.Transport.(*http.Transport); ok {
		t = t.Clone()
		reach.HTTP1(t)

		f.client.Transport = t
	}

	// A whole download has no deadline: it takes as long as the link needs.
	f.client.Timeout = 0
	f.client.CheckRedirect = checkRedirect

	return f
}

// Transport is how the factory is reached, for requests other than downloads.
func (f *Factory) Transport() http.RoundTripper { return f.client.Transport } //nolint:ireturn // as it was given

// Close drops idle connections.
func (f *Factory) Close() { f.client.CloseIdleConnections() }

// Open starts to download an image and decodes the beginning of the disk. It blocks while
// the factory builds. It asks for .raw.zst first and for .raw.xz when that is
// not served. Errors are of type *FactoryError, unless image is malformed. The
// caller closes the stream; ending ctx ends it too.
func (f *Factory) Open(ctx context.Context, image ImageURL) (*Stream, error) {
	var err error

	for _, form := range forms {
		var stream *Stream

		if stream, err = f.open(ctx, image, form); err == nil {
			return stream, nil
		}

		if !errors.Is(err, errFormNotServed) {
			break
		}
	}

	return nil, err
}

// errFormNotServed: the factory does not serve the image in this compression,
// for all that its answer tells.
var errFormNotServed = errors.New("the factory does not serve this file")

// address gives the URL of the image with the given suffix, and its file name.
func (i ImageURL) address(suffix string) (*url.URL, string, error) {
	base, err := url.Parse(i.Base)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Hostname() == "" {
		return nil, "", errors.New("the address of the image factory is not of the form https://host[:port][/prefix]")
	}

	if !schematicID.MatchString(i.Schematic) {
		return nil, "", fmt.Errorf("schematic ID %.20q is malformed", i.Schematic)
	}

	version, err := ParseVersion(i.Talos)
	if err != nil {
		return nil, "", err
	}

	if i.Arch != "amd64" && i.Arch != "arm64" {
		return nil, "", fmt.Errorf("architecture %.20q is neither amd64 nor arm64", i.Arch)
	}

	file := "nocloud-" + i.Arch
	if i.SecureBoot {
		file += "-secureboot"
	}

	file += suffix

	return base.JoinPath("image", i.Schematic, "v"+version.String(), file), file, nil
}

func (f *Factory) open(ctx context.Context, image ImageURL, form string) (*Stream, error) {
	about, resp, a, err := f.request(ctx, image, form, nil) //nolint:bodyclose // the answer closes it
	if err != nil {
		return nil, err
	}

	if resp.StatusCode != http.StatusOK {
		defer a.close()

		return nil, f.refusal(about, resp, a)
	}

	src := newSource(ctx, a, resp.ContentLength)

	if f.config.ResumePause > 0 {
		same := validator(resp.Header)
		src.tries, src.pause = resumeTries, f.config.ResumePause
		src.again = func(ctx context.Context, s *source) (*answer, error) { return f.again(ctx, image, form, same, s) }
	}

	stream, err := newStream(about, src)
	if err != nil {
		src.Close()

		return nil, err
	}

	return stream, nil
}

var (
	errNoAnswer = errors.New("no answer in time")
	errClosed   = errors.New("the connection was closed without an answer")
)

// request asks for the image in one compression. An answer of any status is no
// error here.
func (f *Factory) request(ctx context.Context, image ImageURL, form string, extra http.Header) (FactoryError, *http.Response, *answer, error) {
	address, file, err := image.address(form)
	if err != nil {
		return FactoryError{}, nil, nil, fmt.Errorf("building the address of an image: %w", err)
	}

	about := FactoryError{
		Factory: address.Host, Schematic: image.Schematic, Talos: strings.TrimPrefix(image.Talos, "v"), File: file,
	}

	ctx, cancel := context.WithCancelCause(ctx)

	resp, err := f.get(ctx, cancel, address, image.Header, extra)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		} else if errors.Is(err, io.EOF) {
			err = errClosed
		}

		cancel(nil)

		return about, nil, nil, about.with(KindTransport, 0, bare(err))
	}

	return about, resp, newAnswer(ctx, cancel, resp.Body, f.config.IdleTimeout), nil
}

func (f *Factory) get(
	ctx context.Context, cancel context.CancelCauseFunc, address *url.URL, header, extra http.Header,
) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return nil, err
	}

	maps.Copy(req.Header, header)
	maps.Copy(req.Header, extra)

	// Without this the transport would unpack Content-Encoding on its own and
	// hide the length.
	req.Header.Set("Accept-Encoding", "identity")

	if f.config.UserAgent != "" {
		req.Header.Set("User-Agent", f.config.UserAgent)
	}

	timer := time.AfterFunc(f.config.HeaderTimeout, func() {
		cancel(fmt.Errorf("%w (%s)", errNoAnswer, f.config.HeaderTimeout))
	})
	defer timer.Stop()

	return f.client.Do(req)
}

// forAnyHost are the headers that say nothing about us that another host must
// not know.
var forAnyHost = []string{"Accept-Encoding", "User-Agent", "Range", "If-Range"}

// checkRedirect follows redirects to object storage but sends none of the
// factory's credentials there: object storage refuses them at best.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}

	// The referrer of a download by token would be its secret.
	req.Header.Del("Referer")

	origin := via[0].URL

	if origin.Scheme == "https" && req.URL.Scheme != "https" {
		return fmt.Errorf("redirect from https to %s on %s", req.URL.Scheme, req.URL.Host)
	}

	if sameOrigin(origin, req.URL) && !slices.ContainsFunc(via, func(hop *http.Request) bool { return !sameOrigin(origin, hop.URL) }) {
		return nil
	}

	for name := range req.Header {
		if !slices.Contains(forAnyHost, name) {
			req.Header.Del(name)
		}
	}

	return nil
}

func sameOrigin(a, b *url.URL) bool { return a.Scheme == b.Scheme && a.Host == b.Host }

// refusal turns an answer that is no image into an error.
func (f *Factory) refusal(about FactoryError, resp *http.Response, body io.Reader) error {
	code := resp.StatusCode

	switch {
	case code == http.StatusNotFound || code == http.StatusBadRequest:
		// A broken body tells nothing, and the code is enough.
		text, _ := io.ReadAll(io.LimitReader(body, 4096))

		return about.notFound(code, strings.ToLower(string(text)))
	case code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable:
		err := about.with(KindRetryLater, code, nil)
		err.RetryAfter = f.retryAfter(resp.Header)

		return err
	case code >= http.StatusInternalServerError:
		return about.with(KindServer, code, nil)
	case code == http.StatusUnauthorized || code == http.StatusPaymentRequired || code == http.StatusForbidden:
		return about.with(KindAuth, code, nil)
	}

	return about.with(KindContent, code, fmt.Errorf("the factory answered %d", code))
}

// notFound tells an unknown schematic from a version that is not offered and a
// file that is not served, by the words of the factory's answer. A missing
// schematic is the fallback, since registering it again does no harm.
func (e FactoryError) notFound(code int, text string) error {
	switch {
	case strings.Contains(text, "version") && strings.Contains(text, "not available"):
		return e.with(KindVersionNotFound, code, nil)
	case code == http.StatusNotFound && strings.Contains(text, "schematic"):
		return e.with(KindNotFound, code, nil)
	case code == http.StatusNotFound:
		return e.with(KindNotFound, code, errFormNotServed)
	}

	return e.with(KindContent, code, fmt.Errorf("%w (%d)", errFormNotServed, code))
}

func (e FactoryError) with(kind Kind, status int, cause error) *FactoryError {
	e.Kind, e.Status, e.cause = kind, status, cause

	return &e
}

// retryAfter reads the header in both its forms, seconds and a date. A date is
// held against the answer's own date, since clocks differ.
func (f *Factory) retryAfter(header http.Header) time.Duration {
	text := strings.TrimSpace(header.Get("Retry-After"))

	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}

	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}

	now, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		now = f.config.Now()
	}

	return min(max(at.Sub(now), 0), maxRetryAfter)
}
