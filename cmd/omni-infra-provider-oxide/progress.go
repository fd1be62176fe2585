package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
)

const (
	barWidth = 30
	// Without a terminal a line is written when this much has changed.
	lineEvery   = 10 * time.Second
	linePercent = 10
)

// progress shows an upload: a bar on a terminal, lines elsewhere.
type progress struct {
	w        io.Writer
	terminal bool
	now      func() time.Time

	phase   image.Phase
	at      time.Time
	percent uint64
	drawn   bool
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w, now: time.Now}

	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}

	return p
}

func (p *progress) tell(j image.JobInfo) {
	var percent uint64
	if j.Total > 0 {
		percent = 100 * j.Done / j.Total
	}

	if p.terminal {
		full := int(percent * barWidth / 100)
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K[%s%s] %s", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), j.Waits)
		p.drawn = true

		return
	}

	now := p.now()
	if j.Phase == p.phase && now.Sub(p.at) < lineEvery && percent < p.percent+linePercent {
		return
	}

	p.phase, p.at, p.percent = j.Phase, now, percent
	_, _ = fmt.Fprintln(p.w, j.Waits)
}

// end leaves the bar's line.
func (p *progress) end() {
	if p.drawn {
		_, _ = fmt.Fprintln(p.w)
	}
}
