package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	readyWithin = 30 * time.Second
	// stopWithin is how long a process may take after SIGTERM.
	stopWithin = 30 * time.Second
)

// process is a child of the demo. What it writes goes to a log file.
type process struct {
	name   string
	said   func(step string) // told the steps that the child says it takes
	cmd    *exec.Cmd
	log    string
	copied sync.WaitGroup
	// ready holds the key=value pairs of the line by which a simulator says that
	// it serves.
	ready chan map[string]string

	once sync.Once
	err  error
	done chan struct{}
}

// startProcess starts a program with the given environment only, plus PATH and
// HOME. The context does not end it: stop does, in good order.
func startProcess(ctx context.Context, dir, name, program string, args, env []string, said func(string)) (*process, error) {
	path := filepath.Join(dir, name+".log")

	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}

	p := &process{name: name, said: said, log: path, ready: make(chan map[string]string, 1), done: make(chan struct{})}
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), program, args...)
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, env...)
	p.cmd.Stderr = log

	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", name, err), log.Close())
	}

	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", name, err), log.Close())
	}

	p.copied.Go(func() { p.copy(out, log) })

	go func() {
		p.copied.Wait()
		p.err = errors.Join(p.cmd.Wait(), log.Close())
		close(p.done)
	}()

	return p, nil
}

// copy logs what the child prints, and picks out its steps and its ready line.
func (p *process) copy(out io.Reader, log io.Writer) {
	lines := bufio.NewScanner(out)

	for lines.Scan() {
		_, _ = fmt.Fprintln(log, lines.Text())

		if step, ok := strings.CutPrefix(lines.Text(), "setup: "); ok && p.said != nil {
			p.said(step)
		}

		rest, ok := strings.CutPrefix(lines.Text(), "ready ")
		if !ok {
			continue
		}

		values := map[string]string{}

		for _, field := range strings.Fields(rest) {
			if k, v, ok := strings.Cut(field, "="); ok {
				values[k] = v
			}
		}

		select {
		case p.ready <- values:
		default:
		}
	}
}

// waitReady answers the values of the ready line.
func (p *process) waitReady(ctx context.Context) (map[string]string, error) {
	select {
	case v := <-p.ready:
		return v, nil
	case <-p.done:
		return nil, fmt.Errorf("%s ended before it was ready: %w; see %s", p.name, p.err, p.log)
	case <-time.After(readyWithin):
		return nil, fmt.Errorf("%s was not ready within %s; see %s", p.name, readyWithin, p.log)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// alive says whether the process still runs.
func (p *process) alive() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended: %w; see %s", p.name, p.err, p.log)
	default:
		return nil
	}
}

// stop ends the process in good order, and with force when that takes too long.
func (p *process) stop() error {
	p.once.Do(func() { _ = p.cmd.Process.Signal(syscall.SIGTERM) })

	select {
	case <-p.done:
	case <-time.After(stopWithin):
		_ = p.cmd.Process.Kill()

		<-p.done

		return fmt.Errorf("%s did not end within %s of SIGTERM; see %s", p.name, stopWithin, p.log)
	}

	if p.err != nil {
		return fmt.Errorf("%s ended badly: %w; see %s", p.name, p.err, p.log)
	}

	return nil
}
