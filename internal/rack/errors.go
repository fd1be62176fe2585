package rack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/reach"
)

// Class says what a failed call means for what to do next. It is the only
// place that knows the rack's error codes and texts.
type Class int

// The classes, from the most to the least telling.
const (
	// ClassOK is no error at all.
	ClassOK Class = iota
	// ClassGone is 404 ObjectNotFound. The object may also be hidden from us, so
	// it is a reason to look for proof and never a proof by itself.
	ClassGone
	// ClassExists is 400 ObjectAlreadyExists: a name is taken. Exists tells whose.
	ClassExists
	// ClassInvalid is any other 400, and what only a person can mend in the silo:
	// a bad value, an object in the wrong state, no default address pool.
	ClassInvalid
	// ClassCredentials is a token that the rack does not accept.
	ClassCredentials
	// ClassForbidden is a token that may read the object but not do this to it.
	ClassForbidden
	// ClassCapacity is a quota, a pool or a sled that is full. It passes.
	ClassCapacity
	// ClassConflict is 409: the object is busy changing. It passes.
	ClassConflict
	// ClassBusy is an API that is overloaded, under maintenance or behind a
	// proxy without a backend. It passes.
	ClassBusy
	// ClassInternal is a 500, or an answer that no rack gives. The work may have
	// been done all the same.
	ClassInternal
	// ClassVersion is a rack that does not speak our API version.
	ClassVersion
	// ClassLost is a call without an answer: its outcome is not known.
	ClassLost
	// ClassFenced is a call that the gate did not let out: nothing was done, and
	// nothing may be until this process may work for the provider again.
	ClassFenced
)

// String is the class's name for logs and metrics.
func (c Class) String() string {
	names := [...]string{
		"ok", "gone", "exists", "invalid", "credentials", "forbidden", "capacity",
		"conflict", "busy", "internal", "version", "lost", "fenced",
	}
	if c < 0 || int(c) >= len(names) {
		return "unknown"
	}

	return names[c]
}

// Unsure says that the call may have had its effect although it failed.
func (c Class) Unsure() bool {
	return c == ClassLost || c == ClassInternal || c == ClassBusy
}

// Passing says that the same call can be expected to work later without
// anybody mending anything in the class or in the silo.
func (c Class) Passing() bool {
	switch c {
	case ClassCapacity, ClassConflict, ClassBusy, ClassInternal, ClassLost, ClassFenced:
		return true
	case ClassOK, ClassGone, ClassExists, ClassInvalid, ClassCredentials, ClassForbidden, ClassVersion:
		return false
	}

	return false
}

// Error is a call that failed. Its text is one line without addresses, headers
// or secrets, and holds the rack's request ID for whoever reads its logs.
type Error struct {
	// Op is what was being done, as in "creating the instance".
	Op string
	// Class is what the failure means.
	Class Class
	// Status is the HTTP status, 0 without an answer.
	Status int
	// Code is the rack's error code, often empty.
	Code string
	// Message is the rack's own text, or the cause of a lost call.
	Message string
	// RequestID is the rack's ID of the request, empty without an answer.
	RequestID string
	// After is how long the rack is to be left alone, zero if nobody said so.
	After time.Duration

	cause error
}

// Error renders the one line.
func (e *Error) Error() string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%s: %s", e.Op, e.Message)

	switch {
	case e.Status != 0 && e.RequestID != "":
		fmt.Fprintf(b, " (HTTP %d, rack request %s)", e.Status, e.RequestID)
	case e.Status != 0:
		fmt.Fprintf(b, " (HTTP %d)", e.Status)
	}

	return b.String()
}

// Unwrap leads to the cause of a lost call.
func (e *Error) Unwrap() error { return e.cause }

// ClassOf classifies an error of any method of Client.
func ClassOf(err error) Class {
	if err == nil {
		return ClassOK
	}

	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}

	return ClassLost
}

// Reason is what the rack said, in one line for people and without what was
// being done, which callers word better themselves.
func Reason(err error) string {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return oneLine(err.Error())
	}

	if e.RequestID != "" {
		return fmt.Sprintf("%s (rack request %s)", e.Message, e.RequestID)
	}

	return e.Message
}

var existsText = regexp.MustCompile(`^already exists: ([a-z -]+) "([^"]*)"`)

// Exists tells what kind of object holds the name that a ClassExists error is
// about, such as "instance", "disk", "snapshot" or "image".
func Exists(err error) (kind, name string, ok bool) {
	e, is := errors.AsType[*Error](err)
	if !is || e.Class != ClassExists {
		return "", "", false
	}

	m := existsText.FindStringSubmatch(e.Message)
	if m == nil {
		return "", "", false
	}

	return m[1], m[2], true
}

// wrap turns any error of the SDK into an *Error. The SDK flattens transport
// errors into text, so whatever is no HTTP answer has an unknown outcome.
func wrap(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}

	e := &Error{Op: op, Class: ClassLost}

	h, ok := errors.AsType[*oxide.HTTPError](err)
	if !ok || h.HTTPResponse == nil {
		e.Message = lostMessage(ctx, err)
		e.cause = err

		if ctx.Err() != nil {
			e.cause = context.Cause(ctx)
		}

		return e
	}

	e.Status = h.HTTPResponse.StatusCode
	e.RequestID = h.HTTPResponse.Header.Get("X-Request-Id")
	e.Message = http.StatusText(e.Status)
	e.After = retryAfter(h.HTTPResponse.Header, time.Now())

	if h.ErrorResponse != nil && h.ErrorResponse.Message != "" {
		e.Code = h.ErrorResponse.ErrorCode
		e.Message = oneLine(h.ErrorResponse.Message)

		if h.ErrorResponse.RequestId != "" {
			e.RequestID = h.ErrorResponse.RequestId
		}
	}

	e.Class = classify(e.Status, e.Code, e.Message)

	return e
}

func classify(status int, code, message string) Class {
	switch {
	case status == http.StatusNotAcceptable, strings.Contains(message, "does not support this API version"),
		code == "" && strings.Contains(strings.ToLower(message), "api-version"):
		return ClassVersion
	case status == http.StatusUnauthorized,
		status == http.StatusBadRequest && code == "" && strings.Contains(strings.ToLower(message), "authorization"):
		return ClassCredentials
	case isCapacity(status, message):
		return ClassCapacity
	}

	switch status {
	case http.StatusNotFound:
		return classifyNotFound(code, message)
	case http.StatusBadRequest:
		if code == "ObjectAlreadyExists" {
			return ClassExists
		}

		return ClassInvalid
	case http.StatusForbidden:
		return ClassForbidden
	case http.StatusConflict:
		return ClassConflict
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return ClassBusy
	}

	if status >= http.StatusBadRequest && status < http.StatusInternalServerError {
		return ClassInvalid
	}

	return ClassInternal
}

// classifyNotFound keeps apart an object that is gone, a silo without a default
// pool (the SNAT address of an instance needs one) and an address that is not
// an Oxide API at all.
func classifyNotFound(code, message string) Class {
	switch {
	case strings.Contains(message, "default unicast IP"):
		return ClassInvalid
	case code == "ObjectNotFound":
		return ClassGone
	default:
		return ClassInternal
	}
}

// isCapacity knows that empty pools and subnets are told as 400 by some paths
// of the rack, and as 507 by others.
func isCapacity(status int, message string) bool {
	if status == http.StatusInsufficientStorage {
		return true
	}

	return status == http.StatusBadRequest &&
		(strings.Contains(message, "No external IP addresses available") ||
			strings.HasPrefix(message, "No available ") ||
			strings.HasPrefix(message, "Insufficient capacity"))
}

// lostMessage names the cause of a lost call without the URL that Go's HTTP
// client puts before it.
func lostMessage(ctx context.Context, err error) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "no answer from the rack in time"
	}

	if ctx.Err() != nil {
		return "the call was given up"
	}

	s := strings.Join(strings.Fields(err.Error()), " ")

	// Without the words of an answer that was lost: this one tells what to do.
	if _, words := reach.Cause(s, "OXIDE_CA_FILE"); words != "" {
		return oneLine(words)
	}

	if i := strings.LastIndex(s, `": `); i >= 0 {
		s = s[i+3:]
	}

	if strings.HasSuffix(s, refused) {
		s = refused // without the address, which says nothing more
	}

	return oneLine(noAnswer + s)
}

// refused is how systems tell that nobody listens at an address. The SDK leaves
// only the text of it.
const (
	refused  = "connection refused"
	noAnswer = "no answer from the rack: "
)

// Refused tells that nobody listens at the rack's address: its API is not open
// yet, or not any more, and the call has done nothing.
func Refused(err error) bool {
	e, ok := errors.AsType[*Error](err)

	return ok && e.Class == ClassLost && e.Message == noAnswer+refused
}

// maxMessage leaves room in a line of 200 characters for what was being done and
// for the rack's request ID, which is what its operators need.
const maxMessage = 110

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage-1], "") + "…"
	}

	return s
}
