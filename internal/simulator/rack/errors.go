package rack

import (
	"fmt"
	"net/http"
)

// apiError is an answer of the rack that is not a success. Code is empty where
// the HTTP layer answers before the control plane's own code has seen the call.
type apiError struct {
	status  int
	code    string
	message string
	// allow are the methods of the path, of a call with another one.
	allow []string
}

func (e *apiError) Error() string { return e.message }

// errorBody is how an error looks on the wire.
type errorBody struct {
	RequestID string `json:"request_id"`
	ErrorCode string `json:"error_code,omitempty"`
	Message   string `json:"message"`
}

// badParse is a body, path or query that could not be read: no error code.
func badParse(format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, message: fmt.Sprintf(format, args...)}
}

func invalidRequest(format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, code: "InvalidRequest", message: fmt.Sprintf(format, args...)}
}

func invalidValue(label, format string, args ...any) *apiError {
	return &apiError{
		status: http.StatusBadRequest, code: "InvalidValue",
		message: fmt.Sprintf("unsupported value for %q: %s", label, fmt.Sprintf(format, args...)),
	}
}

// notFound names the object by the selector that the caller used.
func notFound(kind, selector string) *apiError {
	by := "name"
	if isUUID(selector) {
		by = "id"
	}

	return &apiError{
		status: http.StatusNotFound, code: "ObjectNotFound",
		message: fmt.Sprintf("not found: %s with %s %q", kind, by, selector),
	}
}

func alreadyExists(kind, name string) *apiError {
	return &apiError{
		status: http.StatusBadRequest, code: "ObjectAlreadyExists",
		message: fmt.Sprintf("already exists: %s %q", kind, name),
	}
}

func conflict(format string, args ...any) *apiError {
	return &apiError{status: http.StatusConflict, code: "Conflict", message: fmt.Sprintf(format, args...)}
}

// noCapacity is quota, sleds, disks or address pools exhausted.
func noCapacity(format string, args ...any) *apiError {
	return &apiError{
		status: http.StatusInsufficientStorage, code: "InsufficientCapacity",
		message: "Insufficient capacity: " + fmt.Sprintf(format, args...),
	}
}

// internal explains nothing, as the rack's 500 does not.
func internal() *apiError {
	return &apiError{status: http.StatusInternalServerError, code: "Internal", message: "Internal Server Error"}
}

// unavailable explains nothing either.
func unavailable() *apiError {
	return &apiError{status: http.StatusServiceUnavailable, code: "ServiceNotAvailable", message: "Service Unavailable"}
}

func unauthorized() *apiError {
	return &apiError{status: http.StatusUnauthorized, code: "Unauthorized", message: "credentials missing or invalid"}
}

func forbidden() *apiError {
	return &apiError{status: http.StatusForbidden, code: "Forbidden", message: "Forbidden"}
}

// notServed is an operation of the real API that this simulator does not have.
func notServed(method, path string) *apiError {
	return &apiError{
		status:  http.StatusNotImplemented,
		message: fmt.Sprintf("the simulated rack does not serve %s %s", method, path),
	}
}
