package rack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// Serve answers on a listener until ctx ends; nil when it ended for that. While
// the rack is away for maintenance nobody listens there: what is open is
// dropped, and new connections are refused.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	address, isTCP := l.Addr().(*net.TCPAddr)

	for {
		err := s.serveWhile(ctx, l, func() bool { return !isTCP || !s.isAway() })
		if err != nil || ctx.Err() != nil {
			return err
		}

		if l, err = s.standAway(ctx, address); err != nil || l == nil {
			return err
		}
	}
}

// serveWhile serves as long as it may and ctx lasts, and drops all connections
// then. It closes the listener.
func (s *Server) serveWhile(ctx context.Context, l net.Listener, may func() bool) error {
	srv := &http.Server{Handler: s, ReadHeaderTimeout: 30 * time.Second, ErrorLog: zap.NewStdLog(s.log)}
	done := make(chan error, 1)

	go func() { done <- srv.Serve(l) }()

	for may() {
		changed := s.faults.awaitChange()
		if !may() {
			break
		}

		select {
		case err := <-done:
			return fmt.Errorf("serving the rack API: %w", err)
		case <-ctx.Done():
		case <-changed:
			continue
		}

		break
	}

	err := srv.Close()
	if serveErr := <-done; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}

	return err
}

// standAway keeps an address, without listening, while the rack is away, and
// listens again afterwards; nil when ctx ends before.
func (s *Server) standAway(ctx context.Context, address *net.TCPAddr) (net.Listener, error) {
	kept, err := keep(address)
	if err != nil {
		return nil, fmt.Errorf("keeping the address of the rack API: %w", err)
	}

	defer func() { _ = kept.Close() }()

	for s.isAway() && ctx.Err() == nil {
		changed := s.faults.awaitChange()
		if !s.isAway() {
			break
		}

		select {
		case <-changed:
		case <-ctx.Done():
		}
	}

	if ctx.Err() != nil {
		return nil, nil //nolint:nilnil // the rack ends: nothing is opened
	}

	if err := syscall.Listen(int(kept.Fd()), syscall.SOMAXCONN); err != nil {
		return nil, fmt.Errorf("serving the rack API again: %w", err)
	}

	l, err := net.FileListener(kept)
	if err != nil {
		return nil, fmt.Errorf("serving the rack API again: %w", err)
	}

	return l, nil
}

// keep binds an address and does not listen there: connections are refused,
// and no other process takes it.
func keep(address *net.TCPAddr) (*os.File, error) {
	family, sockaddr := socketAddress(address)

	fd, err := syscall.Socket(family, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}

	syscall.CloseOnExec(fd)

	f := os.NewFile(uintptr(fd), address.String())

	// Connections of before may linger there.
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return nil, errors.Join(os.NewSyscallError("setsockopt", err), f.Close())
	}

	if err := syscall.Bind(fd, sockaddr); err != nil {
		return nil, errors.Join(os.NewSyscallError("bind", err), f.Close())
	}

	return f, nil
}

func socketAddress(address *net.TCPAddr) (family int, sockaddr syscall.Sockaddr) {
	if ip := address.IP.To4(); ip != nil {
		return syscall.AF_INET, &syscall.SockaddrInet4{Port: address.Port, Addr: [4]byte(ip)}
	}

	six := &syscall.SockaddrInet6{Port: address.Port, Addr: [16]byte(address.IP.To16())}
	if zone, err := strconv.ParseUint(address.Zone, 10, 32); err == nil {
		six.ZoneId = uint32(zone)
	} else if i, err := net.InterfaceByName(address.Zone); err == nil {
		six.ZoneId = uint32(i.Index)
	}

	return syscall.AF_INET6, six
}

// isAway says whether nobody is there to take calls.
func (s *Server) isAway() bool {
	for _, h := range s.faults.holding(ConditionMaintenance) {
		if h.phase == 2 {
			return true
		}
	}

	return false
}
