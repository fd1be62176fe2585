package omni

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// unary authenticates, logs and hooks a call with one answer.
func (s *Server) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, who, authErr := s.keys.authenticate(ctx, info.FullMethod, s.log)

	call := describeCall(info.FullMethod, request)
	call.Identity = who.name
	number := s.calls.begin(call)

	if authErr != nil {
		s.calls.end(number, status.Code(authErr))

		return nil, authErr
	}

	answer, err := handler(ctx, request)
	s.calls.end(number, status.Code(err))

	return answer, err
}

// stream authenticates, logs and hooks a list or a watch, and lets it be cut.
func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, who, err := s.keys.authenticate(ss.Context(), info.FullMethod, s.log)
	if err != nil {
		number := s.calls.begin(describeCall(info.FullMethod, nil))
		s.calls.end(number, status.Code(err))

		return err
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	open := &openStream{ServerStream: ss, ctx: ctx, cancel: cancel, server: s, method: info.FullMethod, who: who}

	s.streams.add(open)
	defer s.streams.drop(open)

	err = handler(srv, open)
	if cause := context.Cause(ctx); cause == errStreamCut { //nolint:errorlint // the very error
		err = errStreamCut
	}

	if open.number > 0 {
		s.calls.end(open.number, status.Code(err))
	}

	return err
}

var errStreamCut = status.Error(codes.Unavailable, "the stream was cut")

// openStream is a stream that knows its call and stamps bookmarks.
type openStream struct {
	grpc.ServerStream

	ctx    context.Context
	cancel context.CancelCauseFunc
	server *Server
	method string
	who    identity
	number int
}

// Context implements grpc.ServerStream.
func (o *openStream) Context() context.Context { return o.ctx }

// RecvMsg implements grpc.ServerStream. The first message is the request.
func (o *openStream) RecvMsg(m any) error {
	if err := o.ServerStream.RecvMsg(m); err != nil || o.number > 0 {
		return err
	}

	call := describeCall(o.method, m)
	call.Identity = o.who.name
	o.number = o.server.calls.begin(call)

	return o.server.bookmarks.open(m)
}

// SendMsg implements grpc.ServerStream.
func (o *openStream) SendMsg(m any) error {
	o.server.bookmarks.stamp(m)

	return o.ServerStream.SendMsg(m)
}

// streams are the lists and watches that are open.
type streams struct {
	mu   sync.Mutex
	open map[*openStream]struct{}
}

func (s *streams) add(stream *openStream) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.open[stream] = struct{}{}
}

func (s *streams) drop(stream *openStream) {
	s.mu.Lock()
	defer s.mu.Unlock()

	delete(s.open, stream)
}

// CutStreams ends all open streams with Unavailable, as a restart of Omni or of
// a proxy does, and says how many there were.
func (s *Server) CutStreams() int {
	s.streams.mu.Lock()
	defer s.streams.mu.Unlock()

	for stream := range s.streams.open {
		stream.cancel(errStreamCut)
	}

	return len(s.streams.open)
}

// OpenStreams says how many streams are open.
func (s *Server) OpenStreams() int {
	s.streams.mu.Lock()
	defer s.streams.mu.Unlock()

	return len(s.streams.open)
}
