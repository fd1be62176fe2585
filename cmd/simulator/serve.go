package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newLogger logs to standard error, for people, from the level of --log-level on.
func newLogger(level string) (*zap.Logger, error) {
	least, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("reading --log-level: %w", err)
	}

	config := zap.NewProductionConfig()
	config.Level = zap.NewAtomicLevelAt(least)
	config.Encoding = "console"
	config.EncoderConfig.EncodeTime = zapcore.ISO8601TimeEncoder

	logger, err := config.Build()
	if err != nil {
		return nil, fmt.Errorf("making the logger: %w", err)
	}

	return logger, nil
}

// sayReady prints the one line by which whoever started the simulator knows that
// it serves, and where: "ready <what> endpoint=<url>", and more values after it.
func sayReady(cmd *cobra.Command, what, endpoint, more string) error {
	if more != "" {
		more = " " + more
	}

	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "ready %s endpoint=%s%s\n", what, endpoint, more); err != nil {
		return fmt.Errorf("saying that it is ready: %w", err)
	}

	return nil
}
