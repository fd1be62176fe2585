package rack

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	"go.uber.org/zap"
)

// pickFault finds what hits a call: the rack's own state first, then the rules.
func (s *Server) pickFault(c *call) Fault {
	if !s.faults.any() {
		return Fault{}
	}

	if f := s.maintenance(c.op); f.Action != ActionNone {
		return f
	}

	return s.faults.pick(c.op, c.r, s.tokenName(c.r))
}

// carryOut does the work as the fault has it, and ends the call.
func (s *Server) carryOut(w http.ResponseWriter, c *call, work func() (answer, error)) {
	f := &c.fault

	switch f.Action {
	case ActionHang:
		select {
		case <-c.r.Context().Done():
		case <-s.ctx.Done():
		}

		s.finish(c, 0)
		reset(w)
	case ActionReset:
		s.finish(c, 0)
		reset(w)
	case ActionCommitLate:
		s.commitLate(c, work)
		reset(w)

		return
	case ActionLoseAnswer:
		a, err := work()
		s.log.Debug("answer lost", zap.Int("call.seq", c.seq), zap.Int("http.status", statusOf(a, err)))
		s.finish(c, 0)
		reset(w)
	case ActionError, ActionProxyPage:
		c.spoiled = f.Condition == "" // a rack in maintenance answers for itself
		s.reply(w, c, answer{}, f.asError())
	case ActionErrorAfter:
		_, err := work()
		if err == nil {
			c.spoiled = true
			err = f.asError()
		}

		s.reply(w, c, answer{}, err)
	default:
		s.prepare(c)

		a, err := work()
		s.reply(w, c, a, err)
	}

	c.release()
}

// prepare is what a fault does before the work that goes on as usual.
func (s *Server) prepare(c *call) {
	switch c.fault.Action {
	case ActionDelay:
		s.pause(c.fault.Delay.duration())
	case ActionStripHeader:
		c.r.Header.Del(c.fault.Header)
	default:
	}

	if c.fault.Event != "" {
		s.happen(c.fault)
	}
}

// commitLate does the work when the client has given up.
func (s *Server) commitLate(c *call, work func() (answer, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.spawn(func() {
		s.pause(c.fault.Delay.duration())

		a, err := work()
		s.log.Debug("late work done", zap.Int("call.seq", c.seq), zap.Int("http.status", statusOf(a, err)))
		s.finish(c, 0)
		c.release()
	})
}

const proxyPage = `<html>
<head><title>502 Bad Gateway</title></head>
<body><center><h1>502 Bad Gateway</h1></center></body>
</html>
`

// spoil makes of an answer what the fault makes of it.
func (c *call) spoil(w http.ResponseWriter, status int, raw []byte) (int, []byte) {
	f, h := &c.fault, w.Header()

	switch f.Action {
	case ActionProxyPage:
		h.Del("X-Request-Id")

		return f.status(http.StatusBadGateway), f.otherBody(h, "text/html", proxyPage)
	case ActionWrongContent:
		c.spoiled = true

		return f.status(status), f.otherBody(h, "application/json", `{"items":"none"}`)
	case ActionUnknownState:
		c.spoiled = true

		value := f.Value
		if value == "" {
			value = "hibernating"
		}

		return status, withStates(raw, value)
	case ActionStripHeader:
		c.spoiled = true
		h.Del(f.Header)
	case ActionTruncate:
		c.spoiled = true
		breakOff(w, status, raw)
	default:
	}

	return status, raw
}

func (f *Fault) otherBody(h http.Header, contentType, body string) []byte {
	if f.ContentType != "" {
		contentType = f.ContentType
	}

	if f.Body != "" {
		body = f.Body
	}

	h.Set("Content-Type", contentType)

	return []byte(body)
}

// breakOff sends half of an answer and drops the connection.
func breakOff(w http.ResponseWriter, status int, raw []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(len(raw))) // which is not reached
	w.WriteHeader(status)

	_, _ = w.Write(raw[:len(raw)/2])
	_ = http.NewResponseController(w).Flush()

	panic(http.ErrAbortHandler)
}

// withStates puts another word for each state in an answer.
func withStates(raw []byte, value string) []byte {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()

	var v any
	if d.Decode(&v) != nil {
		return raw
	}

	replaceStates(v, value)

	out, err := json.Marshal(v)
	if err != nil {
		return raw
	}

	return out
}

func replaceStates(v any, value string) {
	switch t := v.(type) {
	case map[string]any:
		for k, x := range t {
			if _, isText := x.(string); isText && (k == "state" || k == "run_state") {
				t[k] = value
			} else {
				replaceStates(x, value)
			}
		}
	case []any:
		for _, x := range t {
			replaceStates(x, value)
		}
	}
}
