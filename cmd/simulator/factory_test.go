package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// The command says where it serves, serves there, and ends with its context.
func TestFactoryCommand(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	out, in := io.Pipe()
	root := rootCommand()
	root.SetArgs([]string{"factory", "--listen", "127.0.0.1:0", "--data-dir", t.TempDir(), "--image-size", "2097152", "--log-level", "error"})
	root.SetOut(in)

	ended := make(chan error, 1)

	go func() { ended <- root.ExecuteContext(ctx) }()

	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}

	url, ok := strings.CutPrefix(strings.TrimSpace(line), "ready factory endpoint=")
	if !ok {
		t.Fatal(line)
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/versions", nil)
	if err != nil {
		t.Fatal(err)
	}

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}

	if resp.Body.Close(); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}

	cancel()

	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func TestFactoryCommandRefusesMistakes(t *testing.T) {
	for _, args := range [][]string{
		{"--log-level", "loud"},
		{"--full-image", "--image-size", "2097152"},
		{"--listen", "nowhere"},
		{"--image-size", "1000"},
		{"surplus"},
	} {
		root := rootCommand()
		root.SetArgs(append([]string{"factory"}, args...))
		root.SetOut(io.Discard)

		if err := root.ExecuteContext(t.Context()); err == nil {
			t.Errorf("%v passed", args)
		}
	}
}
