package talos

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/reach"
)

// Kind says what to do about an error of the image factory.
type Kind int

// The kinds of factory errors.
const (
	// KindTransport: no answer, or the connection broke or stood still. Try again.
	KindTransport Kind = iota
	// KindNotFound: the factory does not know the schematic. Register it again.
	KindNotFound
	// KindVersionNotFound: the factory does not offer this Talos version.
	KindVersionNotFound
	// KindRetryLater: 429 or 503. Wait for RetryAfter, or a while if it is zero.
	KindRetryLater
	// KindServer: any other 5xx. Try again, with backoff.
	KindServer
	// KindContent: the answer is not the image: another status, a web page, a
	// truncated or damaged stream, a disk without a partition table.
	KindContent
	// KindAuth: 401, 402 or 403.
	KindAuth
)

// FactoryError is an error of the image factory, or of the way to it.
type FactoryError struct {
	Kind Kind
	// Status is the HTTP status code, 0 when there was no answer.
	Status int
	// RetryAfter is how long the factory asks to wait, for KindRetryLater.
	RetryAfter time.Duration
	// Factory is the host, with its port if it has one.
	Factory string
	// Schematic is the full schematic ID.
	Schematic string
	// Talos is the version without v.
	Talos string
	// File is the name of the file asked for.
	File string

	cause error
}

// Error is one line that names the factory, what was asked for and what went
// wrong; it holds no query strings.
func (e *FactoryError) Error() string {
	what := fmt.Sprintf("image factory %s: %s of schematic %.12s, Talos %s", e.Factory, e.File, e.Schematic, e.Talos)

	switch e.Kind {
	case KindNotFound:
		return what + ": the factory does not know this schematic (404)"
	case KindVersionNotFound:
		return what + ": the factory does not offer this Talos version (404)"
	case KindRetryLater:
		if e.RetryAfter > 0 {
			return fmt.Sprintf("%s: asked to come back in %s (%d)", what, e.RetryAfter.Round(time.Second), e.Status)
		}

		return fmt.Sprintf("%s: asked to come back later (%d)", what, e.Status)
	case KindServer:
		return fmt.Sprintf("%s: the factory answered %d", what, e.Status)
	case KindAuth:
		return fmt.Sprintf("%s: the factory refused access (%d)", what, e.Status)
	case KindContent, KindTransport:
	}

	text := oneLine(e.cause)
	if _, words := reach.Cause(text, "IMAGE_FACTORY_CA_FILE"); words != "" {
		text = words
	}

	return what + ": " + text
}

// Unwrap gives the cause, if there is one that reveals nothing.
func (e *FactoryError) Unwrap() error { return e.cause }

// queryString matches the query of a URL inside a text.
var queryString = regexp.MustCompile(`\?[^\s"'<>]*`)

// oneLine is the text of an error without query strings and line breaks.
func oneLine(err error) string {
	if err == nil {
		return "unknown error"
	}

	text := queryString.ReplaceAllString(err.Error(), "")

	return strings.Join(strings.Fields(text), " ")
}

// bare takes the URL that net/http puts around its errors off again, and keeps
// no cause whose text holds a query string.
func bare(err error) error {
	for {
		var outer *url.Error
		if !errors.As(err, &outer) {
			break
		}

		err = outer.Err
	}

	if err != nil && strings.Contains(err.Error(), "?") {
		switch {
		case errors.Is(err, context.Canceled):
			return context.Canceled
		case errors.Is(err, context.DeadlineExceeded):
			return context.DeadlineExceeded
		}

		return errors.New(oneLine(err))
	}

	return err
}
