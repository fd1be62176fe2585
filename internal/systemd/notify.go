// Package systemd tells systemd how the daemon is, as sd_notify(3) describes:
// datagrams of NAME=VALUE lines to the socket that NOTIFY_SOCKET names. Without
// that variable nothing is told.
package systemd

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Notifier tells systemd. The nil Notifier tells nobody.
type Notifier struct {
	address *net.UnixAddr
	// watchdog is how often systemd wants a sign of life, 0 for never.
	watchdog time.Duration
}

// New reads the environment; nil if systemd does not listen. The variables are
// those of sd_notify(3) and sd_watchdog_enabled(3).
func New(lookup func(string) (string, bool)) (*Notifier, error) {
	socket, _ := lookup("NOTIFY_SOCKET")
	if socket == "" {
		return nil, nil //nolint:nilnil // a nil Notifier works
	}

	// An abstract socket begins with a zero byte, which the environment can not
	// hold; Go takes the @ for it.
	if socket[0] != '/' && socket[0] != '@' {
		return nil, fmt.Errorf("NOTIFY_SOCKET is %q, which is neither a path nor an abstract socket", socket)
	}

	n := &Notifier{address: &net.UnixAddr{Name: socket, Net: "unixgram"}}

	usec, _ := lookup("WATCHDOG_USEC")
	pid, _ := lookup("WATCHDOG_PID")

	// The watchdog may be meant for the process that started this one.
	if usec == "" || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return n, nil
	}

	us, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || us <= 0 {
		return nil, fmt.Errorf("WATCHDOG_USEC is %q, which is no number of microseconds", usec)
	}

	n.watchdog = time.Duration(us) * time.Microsecond

	return n, nil
}

// Send sends one message of lines such as READY=1.
func (n *Notifier) Send(lines ...string) error {
	if n == nil {
		return nil
	}

	conn, err := net.DialUnix("unixgram", nil, n.address)
	if err != nil {
		return fmt.Errorf("reaching systemd: %w", err)
	}

	defer conn.Close() //nolint:errcheck // the message is sent, or its error told

	if _, err := conn.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		return fmt.Errorf("telling systemd: %w", err)
	}

	return nil
}

// statusEvery is how often the status is looked at.
const statusEvery = 5 * time.Second

// Run tells systemd that the daemon is ready, then its status whenever that
// changes, and signs of life as often as it wants them, until ctx ends; then that
// the daemon is stopping. A sign of life is sent only when status has returned: a
// daemon that has come to a standstill is started again.
//
// The first error is given to failed, once; nothing else depends on systemd.
func (n *Notifier) Run(ctx context.Context, status func() string, failed func(error)) {
	if n == nil {
		return
	}

	told := false
	send := func(lines ...string) {
		if err := n.Send(lines...); err != nil && !told {
			told = true

			failed(err)
		}
	}

	last := status()
	send("READY=1", "STATUS="+oneLine(last))

	every := statusEvery
	if n.watchdog > 0 {
		every = min(every, n.watchdog/2)
	}

	t := time.NewTicker(every)
	defer t.Stop()

	for {
		select {
		case <-ctx.Done():
			send("STOPPING=1", "STATUS=stopping")

			return
		case <-t.C:
		}

		var lines []string

		if now := status(); now != last {
			last = now

			lines = append(lines, "STATUS="+oneLine(now))
		}

		if n.watchdog > 0 {
			lines = append(lines, "WATCHDOG=1")
		}

		if len(lines) > 0 {
			send(lines...)
		}
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
