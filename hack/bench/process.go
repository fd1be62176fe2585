package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

// roles are what a process of ours can be. Each prints one line of JSON when it
// is ready and ends when its standard input does.
//
//nolint:gochecknoglobals // a table
var roles = map[string]func(ctx context.Context, config string) error{
	"factory": inRole(serveFactory), "rack": inRole(serveRack), "import": inRole(importImages),
	"download": inRole(downloadAlone), "decode": inRole(decodeAlone), "upload": inRole(uploadAlone),
}

// inRole reads the configuration of a role.
func inRole[C any](f func(ctx context.Context, c C, w *wire) error) func(context.Context, string) error {
	return func(ctx context.Context, text string) error {
		var c C

		if err := json.Unmarshal([]byte(text), &c); err != nil {
			return fmt.Errorf("reading the configuration of a part: %w", err)
		}

		ctx, cancel := context.WithCancel(ctx)
		defer cancel()

		w := &wire{lines: make(chan struct{})}

		go w.listen(cancel)

		return f(ctx, c, w)
	}
}

// wire is the way to the process that started this one.
type wire struct{ lines chan struct{} }

// listen takes each line as the word to go on, and the end as the end.
func (w *wire) listen(cancel context.CancelFunc) {
	defer cancel()
	defer close(w.lines)

	for s := bufio.NewScanner(os.Stdin); s.Scan(); {
		w.lines <- struct{}{}
	}
}

func (w *wire) tell(v any) error { return json.NewEncoder(os.Stdout).Encode(v) }

// wait returns at the word to go on; false means the end.
func (w *wire) wait() bool {
	_, ok := <-w.lines

	return ok
}

// part is a process of ours.
type part struct {
	role  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
	errs  bytes.Buffer
}

// start runs this program in a role and reads its first line into ready.
func start(ctx context.Context, role string, config, ready any) (*part, error) {
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}

	self, err := os.Executable()
	if err != nil {
		return nil, err
	}

	p := &part{role: role, cmd: exec.CommandContext(ctx, self, role, string(text))}
	p.cmd.Stderr = &p.errs

	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}

	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}

	p.out = bufio.NewReader(stdout)

	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the %s: %w", role, err)
	}

	if err := p.read(ready); err != nil {
		return nil, errors.Join(err, p.stop())
	}

	return p, nil
}

// read reads the next line.
func (p *part) read(v any) error {
	line, err := p.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, v)
	}

	if err != nil {
		return fmt.Errorf("the %s said nothing: %w: %s", p.role, err, bytes.TrimSpace(p.errs.Bytes()))
	}

	return nil
}

// goOn lets the process do its work and reads what came of it.
func (p *part) goOn(result any) error {
	if _, err := io.WriteString(p.stdin, "go\n"); err != nil {
		return fmt.Errorf("telling the %s to go on: %w", p.role, err)
	}

	return p.read(result)
}

// stop ends the process.
func (p *part) stop() error {
	p.stdin.Close() //nolint:errcheck // it ends either way

	timer := time.AfterFunc(10*time.Second, func() { p.cmd.Process.Kill() }) //nolint:errcheck // it may have ended
	defer timer.Stop()

	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("the %s ended: %w: %s", p.role, err, bytes.TrimSpace(p.errs.Bytes()))
	}

	return nil
}

// memory watches the anonymous memory of a process.
type memory struct {
	stop chan struct{}
	done sync.WaitGroup
	peak int64
	err  error
}

// watch samples every few milliseconds until end.
func (p *part) watch() *memory {
	m := &memory{stop: make(chan struct{})}

	m.done.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()

		for {
			n, err := p.anonymous()
			if err != nil {
				m.err = err

				return
			}

			m.peak = max(m.peak, n)

			select {
			case <-tick.C:
			case <-m.stop:
				return
			}
		}
	})

	return m
}

func (m *memory) end() (int64, error) {
	close(m.stop)
	m.done.Wait()

	return m.peak, m.err
}

// anonymous is the RssAnon of the process in bytes.
func (p *part) anonymous() (int64, error) { return anonymousOf(p.cmd.Process.Pid) }

func anonymousOf(pid int) (int64, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, fmt.Errorf("reading the memory of a process: %w", err)
	}

	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte("RssAnon:")); ok {
			n, err := strconv.ParseInt(string(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte(" kB"))), 10, 64)

			return n << 10, err
		}
	}

	return 0, errors.New("this system does not tell RssAnon")
}
