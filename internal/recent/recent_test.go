package recent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"
)

func serve(t *testing.T, h http.Handler, from string) (int, string) {
	t.Helper()

	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.RemoteAddr = from
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)

	return w.Code, w.Body.String()
}

func TestTheLastLinesAtWarnAreRemembered(t *testing.T) {
	t.Parallel()

	var l Lines

	logger := zap.New(l.Core()).With(zap.String("omni.request.id", "a"))
	logger.Info("no news")

	for n := range kept + 3 {
		logger.Warn(fmt.Sprint("line ", n), zap.Error(errors.New("why (rack request 12)")))
	}

	all := l.All()
	if len(all) != kept || all[0].Text != "line 3" || all[kept-1].Text != fmt.Sprint("line ", kept+2) {
		t.Errorf("%d lines, %q to %q", len(all), all[0].Text, all[len(all)-1].Text)
	}

	code, body := serve(t, l.Handler(), "127.0.0.1:1")

	var got []Line
	if err := json.Unmarshal([]byte(body), &got); err != nil || code != 200 || len(got) != kept {
		t.Fatalf("%d, %v: %s", code, err, body)
	}

	if f := got[0].Fields; f["omni.request.id"] != "a" || f["error"] != "why (rack request 12)" {
		t.Errorf("fields %v", f)
	}
}

func TestOnlyThisHostIsServed(t *testing.T) {
	t.Parallel()

	var l Lines

	for from, want := range map[string]int{"127.0.0.1:1": 200, "[::1]:1": 200, "10.0.0.1:1": 403, "": 403} {
		if code, _ := serve(t, l.Handler(), from); code != want {
			t.Errorf("%q gets the lines with %d", from, code)
		}

		code, body := serve(t, Goroutines(), from)
		if code != want || (want == 200) != strings.Contains(body, "goroutine profile") {
			t.Errorf("%q gets the stacks with %d: %.80s", from, code, body)
		}
	}
}
