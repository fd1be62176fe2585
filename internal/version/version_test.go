package version

import (
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/oxidecomputer/oxide.go/oxide"
)

func TestGetFallsBackToWhatGoRecorded(t *testing.T) {
	t.Parallel()

	build := &debug.BuildInfo{
		Main:     debug.Module{Version: "v1.2.3"},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}},
		Deps: []*debug.Module{
			{Path: oxideClient, Version: "v0.10.0"}, {Path: omniClient, Version: "v1.9.3"}, {Path: "other", Version: "v9"},
		},
	}

	if got := get(build); got.Version != "v1.2.3" || got.Commit != "abc" || got.OxideClient != "v0.10.0" || got.OmniClient != "v1.9.3" {
		t.Errorf("%+v", got)
	}

	build.Main.Version, build.Settings, build.Deps = "(devel)", nil, nil

	for _, b := range []*debug.BuildInfo{nil, build} {
		if got := get(b); got.Version != "dev" || got.Commit != unknown || got.OxideClient != unknown {
			t.Errorf("%+v", got)
		}
	}
}

func TestUserAgentNamesTheVersion(t *testing.T) {
	t.Parallel()

	if got, want := UserAgent(), "omni-infra-provider-oxide/"+Get().Version; got != want || strings.ContainsAny(got, " \n") {
		t.Errorf("%q", got)
	}
}

func TestStringNamesEachFact(t *testing.T) {
	t.Parallel()

	text := Get().String()
	for _, fact := range []string{Get().Version, Get().Commit, OxideAPIVersion, MinimumTalos, "oxide.go:", "omni client:"} {
		if !strings.Contains(text, fact) {
			t.Errorf("%q lacks %q", text, fact)
		}
	}
}

// Invariant: the version that we say we speak is the one that the client
// library asks the rack for.
func TestOxideAPIVersionIsTheClients(t *testing.T) {
	t.Parallel()

	asked := make(chan string, 1)

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("Api-Version")

		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"status":"ok"}`))
	}))
	defer server.Close()

	client, err := oxide.NewClient(oxide.WithHost(server.URL), oxide.WithToken("token"))
	if err != nil {
		t.Fatal(err)
	}

	if _, err = client.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}

	if got := <-asked; got != OxideAPIVersion+".0.0" {
		t.Errorf("the client asks for %q", got)
	}
}
