package setup

import "time"

// Clock is the time that a rack comes up in.
type Clock interface {
	Now() time.Time
	After(d time.Duration) <-chan time.Time
}

// Scaled is a clock on which a delay takes factor times as long as it says;
// with 0.1 a rack comes up ten times as fast.
func Scaled(factor float64) Clock { return &scaled{factor: factor, began: time.Now()} }

// leastWait keeps a clock that is fast beyond measure from making a loop spin.
const leastWait = time.Millisecond

type scaled struct {
	factor float64
	began  time.Time
}

func (s *scaled) Now() time.Time {
	return s.began.Add(time.Duration(float64(time.Since(s.began)) / s.factor))
}

func (s *scaled) After(d time.Duration) <-chan time.Time {
	return time.After(max(leastWait, time.Duration(float64(d)*s.factor)))
}
