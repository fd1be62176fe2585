package image

import (
	"fmt"
	"math"
	"time"
)

// paceOver is the time over which the speed of an upload is measured: long enough
// to be steady, short enough to show a rack that has become slow.
const paceOver = 5 * time.Second

// pace is the speed of an upload.
type pace struct {
	at   time.Time // when it was measured last
	done uint64    // bytes at that time
	rate float64   // bytes in a second, 0 before the first measure
}

// note is told how many bytes are done in all.
func (p *pace) note(done uint64, now time.Time) {
	took := now.Sub(p.at)
	if took < paceOver {
		return
	}

	rate := float64(done-p.done) / took.Seconds()

	// Zeros cost nothing and come in stretches: the last measure counts too.
	if p.rate > 0 {
		rate = (rate + p.rate) / 2
	}

	p.at, p.done, p.rate = now, done, rate
}

// left is how long the rest takes, 0 if that is not known. The caller holds mu.
func (j *job) left() time.Duration {
	if j.pace.rate <= 0 || j.total == 0 {
		return 0
	}

	s := math.Ceil(float64(j.total-j.done) / j.pace.rate)

	return time.Duration(min(s, 99*3600)) * time.Second
}

// speed is how fast it goes and how long it will take, empty before that is
// known. The caller holds mu.
func (j *job) speed() string {
	left := j.left()
	if left == 0 {
		return ""
	}

	return fmt.Sprintf(", %.1f MiB/s, %s left", j.pace.rate/mib, left)
}
