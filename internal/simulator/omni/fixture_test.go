package omni_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/controller/generic"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/pkg/client"
	clientomni "github.com/siderolabs/omni/client/pkg/client/omni"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	simulator "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/omni"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// newServer starts a simulated Omni with fast delays and an image factory that
// knows every schematic.
func newServer(t *testing.T) *simulator.Server {
	t.Helper()

	return newServerWith(t, simulator.Config{})
}

func newServerWith(t *testing.T, config simulator.Config) *simulator.Server {
	t.Helper()

	config.TimeScale = 0.01

	if config.FactoryURL == "" {
		config.FactoryURL = newFactory(t)
	}

	if testing.Verbose() {
		config.Log = zaptest.NewLogger(t)
	}

	server, err := simulator.New(config)
	if err != nil {
		t.Fatal(err)
	}

	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})

	return server
}

// newFactory answers each schematic with an ID of its length.
func newFactory(t *testing.T) string {
	t.Helper()

	factory := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/schematics" || r.Method != http.MethodPost {
			w.WriteHeader(http.StatusBadRequest)

			return
		}

		w.WriteHeader(http.StatusCreated)

		_ = json.NewEncoder(w).Encode(map[string]string{"id": fmt.Sprintf("schematic-%d", len(body))})
	}))
	t.Cleanup(factory.Close)

	return factory.URL
}

// connect is the public client with that key.
func connect(t *testing.T, server *simulator.Server, key, provider string) *client.Client {
	t.Helper()

	options := []client.Option{client.WithServiceAccount(key)}
	if provider != "" {
		options = append(options, client.WithOmniClientOptions(clientomni.WithProviderID(provider)))
	}

	c, err := client.New(server.Endpoint(), options...)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = c.Close() })

	return c
}

// providerState is the state as the owner of a provider's key sees it.
func providerState(t *testing.T, server *simulator.Server, provider string) state.State {
	t.Helper()

	key, err := server.MintProviderKey(t.Context(), provider, time.Hour)
	if err != nil {
		t.Fatal(err)
	}

	return connect(t, server, key, provider).Omni().State()
}

// adminState is the state as an administrator's client sees it.
func adminState(t *testing.T, server *simulator.Server) state.State {
	t.Helper()

	key, err := server.MintAdminKey(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}

	return connect(t, server, key, "").Omni().State()
}

// eventually waits until the condition holds, and fails with what it last said.
func eventually(t *testing.T, what string, condition func() (bool, string)) {
	t.Helper()

	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()

	deadline := time.After(patience)

	for {
		ok, last := condition()
		if ok {
			return
		}

		select {
		case <-deadline:
			t.Fatalf("waited in vain until %s: %s", what, last)
		case <-ticker.C:
		}
	}
}

// count waits until there are that many resources of a type.
func count[T generic.ResourceWithRD](t *testing.T, st state.State, want int, opts ...state.ListOption) []T {
	t.Helper()

	var got []T

	eventually(t, fmt.Sprintf("there are %d of %T", want, *new(T)), func() (bool, string) {
		got = list[T](t, st, opts...)

		ids := make([]string, 0, len(got))
		for _, r := range got {
			ids = append(ids, r.Metadata().ID()+"="+r.Metadata().Phase().String())
		}

		return len(got) == want, strings.Join(ids, " ")
	})

	return got
}

func list[T generic.ResourceWithRD](t *testing.T, st state.State, opts ...state.ListOption) []T {
	t.Helper()

	all, err := safe.StateListAll[T](context.WithoutCancel(t.Context()), st, opts...)
	if err != nil {
		t.Fatal(err)
	}

	var items []T
	for item := range all.All() {
		items = append(items, item)
	}

	return items
}

func check(t *testing.T, err error) {
	t.Helper()

	if err != nil {
		t.Fatal(err)
	}
}

func replace(text, old, with string) string { return strings.ReplaceAll(text, old, with) }

// call makes an HTTP call and returns the body of its answer, which must be a
// success.
func call(t *testing.T, method, url string) string {
	t.Helper()

	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	check(t, err)

	response, err := http.DefaultClient.Do(request)
	check(t, err)

	defer http.DefaultClient.CloseIdleConnections()
	defer response.Body.Close()

	body, err := io.ReadAll(response.Body)
	check(t, err)

	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s", method, url, response.Status)
	}

	return string(body)
}
