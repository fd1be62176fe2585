package conform

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"go.uber.org/zap"
)

// line is one of the report: a violation, or the sum of a rack's life.
type line struct {
	Kind    string `json:"kind"`
	Process string `json:"process"`
	*Violation
	Exchanges  int `json:"exchanges,omitempty"`
	Violations int `json:"violations,omitempty"`
}

// report appends to the file that the environment names, if it names one.
func (c *Checker) report(l line) {
	path := os.Getenv(ReportVariable)
	if path == "" {
		return
	}

	l.Process = filepath.Base(os.Args[0])

	if err := appendLine(path, l); err != nil {
		c.log.Error("the report of the API document's checks can not be written", zap.String("path", path), zap.Error(err))
	}
}

func appendLine(path string, l line) error {
	raw, err := json.Marshal(l)
	if err != nil {
		return err
	}

	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}

	_, err = f.Write(append(raw, '\n')) // one write: the file is shared

	return errors.Join(err, f.Close())
}
