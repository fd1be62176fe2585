package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/oxidecomputer/oxide.go/oxide"
)

// rackReady runs the command until the test ends and returns its ready line.
func rackReady(t *testing.T, args ...string) string {
	t.Helper()

	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	done := make(chan error, 1)

	command := rackCommand()
	command.SetOut(in)
	command.SetArgs(append([]string{"--listen", "127.0.0.1:0", "--log-level", "error"}, args...))

	go func() {
		err := command.ExecuteContext(ctx)
		in.CloseWithError(io.EOF)
		done <- err
	}()

	t.Cleanup(func() {
		cancel()

		if err := <-done; err != nil {
			t.Errorf("the rack ended with: %v", err)
		}
	})

	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}

		// What comes before it are the steps of coming up.
		if !strings.HasPrefix(line, "setup: ") {
			return strings.TrimSpace(line)
		}
	}
}

func TestRackCommandServesAnyClient(t *testing.T) {
	ready := rackReady(t, "--project", "one", "--project", "two", "--sleds", "2")

	fields := strings.Fields(ready)
	if len(fields) != 5 || fields[0] != "ready" || fields[1] != "rack" {
		t.Fatalf("ready line is %q", ready)
	}

	client, err := oxide.NewClient(
		oxide.WithHost(strings.TrimPrefix(fields[2], "endpoint=")),
		oxide.WithToken(strings.TrimPrefix(fields[3], "token=")),
	)
	if err != nil {
		t.Fatal(err)
	}

	projects, err := client.ProjectListAllPages(t.Context(), oxide.ProjectListParams{})
	if err != nil || len(projects) != 2 || projects[0].Name != "one" {
		t.Errorf("projects are %+v, %v", projects, err)
	}
}

// The control address answers while the rack is away, and can end that.
func TestRackCommandIsControlledWhileTheRackIsAway(t *testing.T) {
	fields := strings.Fields(rackReady(t, "--fault", `{"condition":"maintenance","away":"1h"}`))
	endpoint, control := strings.TrimPrefix(fields[2], "endpoint="), strings.TrimPrefix(fields[4], "control=")

	do := func(method, url string) (int, error) {
		req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}

		req.Close = true

		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err
		}

		return resp.StatusCode, resp.Body.Close()
	}

	for {
		status, err := do(http.MethodGet, endpoint+"/v1/ping")
		if errors.Is(err, syscall.ECONNREFUSED) {
			break
		}

		// It may be on its way out still.
		if err == nil {
			t.Fatalf("while it is away: %d", status)
		}
	}

	if status, err := do(http.MethodDelete, control+"/simulator/faults"); status != http.StatusNoContent {
		t.Fatalf("control: %d, %v", status, err)
	}

	for {
		status, err := do(http.MethodGet, endpoint+"/v1/ping")
		if status == http.StatusOK {
			return
		}

		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("%d, %v", status, err)
		}
	}
}

func TestRackCommandReadsItsFiles(t *testing.T) {
	dir := t.TempDir()
	token, faults := filepath.Join(dir, "token"), filepath.Join(dir, "faults")

	for path, content := range map[string]string{token: "secret\n", faults: `[{"operation":"ping","action":"error","status":503}]`} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	ready := rackReady(t, "--token-file", token, "--faults", faults)
	if strings.Contains(ready, "secret") {
		t.Errorf("the ready line tells the token: %q", ready)
	}

	client, err := oxide.NewClient(oxide.WithHost(strings.TrimPrefix(strings.Fields(ready)[2], "endpoint=")), oxide.WithToken("secret"))
	if err != nil {
		t.Fatal(err)
	}

	if _, err := client.CurrentUserView(t.Context()); err != nil {
		t.Error(err)
	}

	if _, err := client.Ping(t.Context()); err == nil {
		t.Error("the fault was not there")
	}
}

func TestRackCommandRefusesBadFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--sleds", "0"}, {"--time-scale", "0"}, {"--token", "a", "--token-file", "b"},
		{"--faults", "/none"}, {"--fault", "{}"}, {"--latency", "lunch=1h"}, {"--content", "some"}, {"--token-file", "/none"}, {"--log-level", "loud"}, {"--project", "Upper"}, {"--listen", "nowhere"},
		{"--sleds", "33"}, {"--setup-time-scale", "0"}, {"--rack", "/none"}, {"--rack", "rack_test.go"}, {"--rack", "a", "--sleds", "2"},
		{"--data", "/dev/null/none"}, {"--setup-listen", "nowhere"}, {"--control-listen", "nowhere"},
	} {
		command := rackCommand()
		command.SetArgs(args)
		command.SetOut(io.Discard)
		command.SetErr(io.Discard)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()

		if err := command.ExecuteContext(ctx); err == nil {
			t.Errorf("%v was taken", args)
		}
	}
}
