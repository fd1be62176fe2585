package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// healthcheckTime bounds the whole answer. Health is never waited for inside the
// daemon, so one that needs longer stands still.
const healthcheckTime = 5 * time.Second

func newHealthcheckCommand() *cobra.Command {
	var (
		address string
		ready   bool
	)

	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask the daemon on this host how it is, for container runtimes",
		Long: `Ask the daemon on this host how it is, for container runtimes: an image
without a shell has nothing else to ask with.

It asks /healthz, which answers while the process lives, or with --ready /readyz,
which also wants its needs to be met. It exits with 0 if the answer is good, with
1 if it is not or does not come within 5 seconds, and with 2 if it is not known
where to ask.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if address == "" {
				address = os.Getenv("HEALTH_ADDRESS")
			}

			if address == "" {
				return fmt.Errorf("%w: --health-address ($HEALTH_ADDRESS) is not set", errUsage)
			}

			here, err := onThisHost(address)
			if err != nil {
				return fmt.Errorf("%w: --health-address: %w", errUsage, err)
			}

			path := "/healthz"
			if ready {
				path = "/readyz"
			}

			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: healthcheckTime}

			text, good, err := fetch(cmd.Context(), client, "http://"+here+path)
			if err != nil {
				return fmt.Errorf("the daemon does not answer: %w", err)
			}

			if _, err := fmt.Fprint(cmd.OutOrStdout(), text); err != nil {
				return err
			}

			if !good {
				return errors.New("the daemon is not well")
			}

			return nil
		},
	}
	cmd.Flags().StringVar(&address, "health-address", "", "HOST:PORT at which the daemon serves its health ($HEALTH_ADDRESS)")
	cmd.Flags().BoolVar(&ready, "ready", false, "ask whether it is ready to work")

	return cmd
}

// onThisHost is an address at which something listens, as one to connect to.
func onThisHost(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}

	if ip := net.ParseIP(strings.Trim(host, "[]")); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}

	return net.JoinHostPort(host, port), nil
}
