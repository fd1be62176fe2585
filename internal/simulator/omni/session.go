package omni

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/link"
)

var errLinkBroken = errors.New("the link to the machine broke")

// session is one guest's link. Commands are started and polled, so that the
// controllers never wait for a guest.
type session struct {
	conn  *link.Conn
	hello link.Hello
	wake  func()

	mu       sync.Mutex
	stage    link.Stage
	hostname string
	ended    bool
	next     uint64
	waiting  map[uint64]chan error

	// What the controllers keep about this link.
	commands map[string]*command
}

// command is one command that a controller gave, by its key.
type command struct {
	done bool
	err  error
}

func newSession(conn *link.Conn, hello link.Hello, wake func()) *session {
	return &session{
		conn: conn, hello: hello, wake: wake, stage: hello.Stage, hostname: hello.Hostname,
		waiting: map[uint64]chan error{}, commands: map[string]*command{},
	}
}

// now returns what the guest last said of itself.
func (s *session) now() (stage link.Stage, hostname string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.stage, s.hostname
}

// receive handles what the guest sends until the link breaks.
func (s *session) receive() {
	for {
		message, err := s.conn.Receive()
		if err != nil {
			return
		}

		switch {
		case message.Result != nil:
			s.answer(*message.Result)
		case message.Event != nil:
			s.event(*message.Event)
		}
	}
}

func (s *session) event(event link.Event) {
	s.mu.Lock()

	s.stage = event.Stage
	if event.Hostname != "" {
		s.hostname = event.Hostname
	}

	s.mu.Unlock()

	s.wake()
}

func (s *session) answer(result link.Result) {
	s.mu.Lock()
	waiting := s.waiting[result.Number]
	delete(s.waiting, result.Number)
	s.mu.Unlock()

	if waiting == nil {
		return
	}

	if result.Error != "" {
		waiting <- errors.New(result.Error)

		return
	}

	waiting <- nil
}

// fail ends all commands that are in flight.
func (s *session) fail() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.ended = true

	for number, waiting := range s.waiting {
		waiting <- errLinkBroken

		delete(s.waiting, number)
	}
}

func (s *session) close() { _ = s.conn.Close() }

// do sends a command and waits for its result.
func (s *session) do(ctx context.Context, command link.Command) error {
	answer := make(chan error, 1)

	s.mu.Lock()

	if s.ended {
		s.mu.Unlock()

		return errLinkBroken
	}

	s.next++
	command.Number = s.next
	s.waiting[command.Number] = answer

	s.mu.Unlock()

	if err := s.conn.Send(link.Message{Command: &command}); err != nil {
		return errors.Join(errLinkBroken, err)
	}

	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-answer:
		return err
	}
}

// start gives a command unless one of that key was given before on this link,
// and returns that one's outcome so far.
func (s *session) start(ctx context.Context, wg *sync.WaitGroup, key string, order link.Command) (done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if given, ok := s.commands[key]; ok {
		return given.done, given.err
	}

	given := &command{}
	s.commands[key] = given

	wg.Go(func() {
		err := s.do(ctx, order)

		s.mu.Lock()
		given.done, given.err = true, err
		s.mu.Unlock()

		s.wake()
	})

	return false, nil
}

// forget lets a command of that key be given again.
func (s *session) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if given, ok := s.commands[key]; ok && given.done {
		delete(s.commands, key)
	}
}

// given says whether a command whose key begins so was given on this link.
func (s *session) given(prefix string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	for key := range s.commands {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}

	return false
}
