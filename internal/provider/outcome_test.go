package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/controller"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/instance"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// rackError is the error of a call that a rack answered so.
func rackError(t *testing.T, status int, body string) error {
	t.Helper()

	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	defer s.Close()

	c, err := rack.New(rack.Config{Host: s.URL, Token: "t"})
	if err != nil {
		t.Fatal(err)
	}

	defer c.Close()

	_, err = c.ViewInstance(t.Context(), "x")

	return err
}

func TestEveryErrorIsAWaitOrAFailure(t *testing.T) {
	t.Parallel()

	for _, tc := range []struct {
		name string
		err  error
		wait bool
		text string
	}{
		{"wait", &instance.Wait{Reason: "waiting for x", After: time.Minute}, true, "waiting for x"},
		{"quota", rackError(t, 507, `{"request_id":"r7","message":"Insufficient capacity: vCPU Limit Exceeded"}`), true, "vCPU Limit Exceeded"},
		{"busy", rackError(t, 503, `{"request_id":"r7","message":"Service Unavailable"}`), true, "r7"},
		{"internal", rackError(t, 500, `{"request_id":"r7","message":"Internal Server Error"}`), true, "r7"},
		{"token", rackError(t, 401, `{"request_id":"r7","message":"credentials missing or invalid"}`), false, "refuses the daemon's token"},
		{"role", rackError(t, 403, `{"request_id":"r7","message":"Forbidden"}`), false, "lacks a role"},
		{"old rack", rackError(t, 400, `{"request_id":"r7","message":"server does not support this API version: 2026060800.0.0"}`), false, "API version 2026060800"},
		{"invalid", rackError(t, 400, `{"request_id":"r7","message":"bad","error_code":"InvalidRequest"}`), false, "bad"},
		{"class", &instance.Mend{Reason: "cpus: 300"}, false, "cpus: 300"},
		{"image", &image.MendError{Reason: "no Talos 1.99.0"}, false, "no Talos 1.99.0"},
		{"anything else", errors.New("odd"), false, "odd"},
	} {
		got := outcome(t.Context(), tc.err)
		if requeue := isA[*controller.RequeueError](got); requeue != tc.wait {
			t.Errorf("%s: requeue %v, want %v", tc.name, requeue, tc.wait)
		}

		if !strings.Contains(got.Error(), tc.text) {
			t.Errorf("%s: %q does not say %q", tc.name, got, tc.text)
		}
	}

	if outcome(t.Context(), nil) != nil {
		t.Error("success is an error")
	}

	stopping, cancel := context.WithCancel(t.Context())
	cancel()

	if got := outcome(stopping, errors.New("context canceled")); !isA[*controller.RequeueError](got) {
		t.Errorf("a stopping daemon makes requests fail: %v", got)
	}
}

func TestAWaitWithoutAReasonStillComesBack(t *testing.T) {
	t.Parallel()

	r, ok := errors.AsType[*controller.RequeueError](outcome(t.Context(), &instance.Wait{}))
	if !ok || r.Interval() <= 0 || r.Err() != nil {
		t.Errorf("got %v", r)
	}
}

// Invariant: a healthy run logs nothing at warn or above, and each failure once.
func TestWaitsAreNotLoggedAsErrors(t *testing.T) {
	t.Parallel()

	core, logs := observer.New(zapcore.InfoLevel)
	quiet := Quiet(zap.New(core)).With(zap.String("id", "r1"))

	wait, _ := errors.AsType[*controller.RequeueError](outcome(t.Context(), &instance.Wait{Reason: "waiting"}))
	mend := outcome(t.Context(), &instance.Mend{Reason: "wrong class"})

	quiet.Info("running provision step", zap.String("step", "plan"))
	quiet.Error("reconcile failed", zap.Error(wait.Err()))

	for range 5 {
		quiet.Error("machine provision failed", zap.Error(mend))
		quiet.Error("reconcile failed", zap.Error(mend))
	}

	// Of a link to Omni that is broken the health board tells; the log has one line
	// of each kind of trouble.
	for range 3 {
		quiet.Error("reconcile failed", zap.Error(status.Error(codes.Unavailable, "x")))
	}

	for _, code := range []codes.Code{codes.Unavailable, codes.Unauthenticated, codes.Canceled} {
		quiet.Error("reconcile failed", zap.Error(fmt.Errorf("get: %w", status.Error(code, "x"))))
		quiet.Error("controller failed", zap.Error(status.Error(code, "x")))
	}

	quiet.Error("reconcile failed", zap.Error(errors.New("a real one")))

	all := logs.All()
	if len(all) != 4 || all[0].Message != "machine provision failed" || all[0].Level != zapcore.WarnLevel ||
		all[1].Level != zapcore.WarnLevel || all[2].Level != zapcore.WarnLevel || all[3].Level != zapcore.ErrorLevel {
		t.Errorf("logged %v", all)
	}
}
