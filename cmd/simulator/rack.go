package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/plan"
)

// rackOptions are the flags of the simulated rack.
type rackOptions struct {
	config    rack.Config
	setup     rackSetup
	listen    string
	control   string
	token     string
	tokenFile string
	faults    faultFlags
	fast      bool
	latencies []string
	content   string
	noGuests  bool
	logLevel  string
}

// rackCommand serves a simulated rack until it is told to end.
func rackCommand() *cobra.Command {
	var options rackOptions

	command := &cobra.Command{
		Use:   "rack",
		Short: "Serve a simulated Oxide rack",
		Long: `Serve a simulated Oxide rack: the HTTP API of one silo, in version ` + rack.APIVersion + `.
Instances that run boot simulated Talos machines, which join the Omni that their
user data names.

The rack comes up as a real one does: its setup waits for the sleds' storage
pools, plans, starts DNS and services, and hands the rack over to the control
plane; until then connections to the API are refused. --rack describes another
rack than the built-in one; --data keeps its plans, so that a restart at any
point of this ends in the same rack. The objects of the silo live as long as the
process. Each step is a line on standard output that begins with "setup: ".

Without --token or --token-file a token is made. Once it serves it prints one
line on standard output:

  ready rack endpoint=http://HOST:PORT token=TOKEN control=http://HOST:PORT

The token is left out when it was read from a file. At the control address, where
it answers also while the rack is away for maintenance, and at the endpoint, below /simulator/ the rack
answers without token: GET summary, GET calls (?operation=, status=, path=,
method=, token=, user_agent=, fault=, after=, limit=), GET images/ID/digest and
disks/ID/digest (?length=, or ?chunks), and GET, POST, DELETE faults.

` + faultHelp(),
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()

			return serveRack(ctx, cmd, options)
		},
	}

	flags := command.Flags()
	flags.StringVar(&options.listen, "listen", "127.0.0.1:12220", "address to serve on")
	flags.StringVar(&options.control, "control-listen", "127.0.0.1:0", "loopback address for what is below /simulator/, also while the rack is away; empty for none")
	flags.StringVar(&options.token, "token", "", "token of a user who is collaborator of the silo")
	flags.StringVar(&options.tokenFile, "token-file", "", "file with the token")
	flags.StringArrayVar(&options.config.Projects, "project", nil, "project to make at the start; may be repeated (default demo)")
	flags.Float64Var(&options.config.TimeScale, "time-scale", 1, "factor on all delays")
	options.faults.register(flags)
	flags.StringArrayVar(&options.latencies, "latency", nil, "delay of one kind, such as disk_create=2s; may be repeated")
	flags.StringVar(&options.content, "content", string(rack.ContentKept), "what becomes of uploaded bytes: keep, hash or none")
	flags.BoolVar(&options.fast, "fast", false, "calls take no time, only starts and stops do")
	flags.BoolVar(&options.noGuests, "no-guests", false, "boot nothing in instances that run")
	flags.BoolVar(&options.config.SwapGuestUUID, "swap-guest-uuid", false, "guests read their UUID with the first three groups byte-swapped")
	flags.StringVar(&options.logLevel, "log-level", "info", "debug, info, warn or error")
	options.setup.register(flags)
	command.MarkFlagsMutuallyExclusive("rack", "sleds")

	return command
}

func serveRack(ctx context.Context, cmd *cobra.Command, options rackOptions) error {
	if err := options.complete(); err != nil {
		return err
	}

	// Mistakes are told before the rack comes up, not after.
	description, err := options.check() //nolint:contextcheck // what it makes is ended at once
	if err != nil {
		return err
	}

	end, err := options.setup.comeUp(ctx, cmd.OutOrStdout(), description, &options.config)
	if err != nil {
		return err
	}
	defer end()

	if ctx.Err() != nil {
		return nil // it was ended while it came up
	}

	server, err := rack.New(options.config) //nolint:contextcheck // it lives until it is closed
	if err != nil {
		return err
	}
	defer server.Close()

	var lc net.ListenConfig

	listener, err := lc.Listen(ctx, "tcp", options.listen)
	if err != nil {
		return fmt.Errorf("serving the rack: %w", err)
	}

	var more []string
	if options.tokenFile == "" {
		more = append(more, "token="+options.token)
	}

	if options.control != "" {
		address, stop, err := serveBeside(ctx, "--control-listen", options.control, server.Control(), options.config.Logger)
		if err != nil {
			return errors.Join(err, listener.Close())
		}

		defer stop() //nolint:errcheck // what it was for has ended

		more = append(more, "control=http://"+address)
	}

	if err := sayReady(cmd, "rack", "http://"+listener.Addr().String(), strings.Join(more, " ")); err != nil {
		return err
	}

	return server.Serve(ctx, listener)
}

// complete makes the configuration of the flags.
func (o *rackOptions) complete() error {
	if o.config.TimeScale <= 0 {
		return fmt.Errorf("--time-scale is %g: it must be above 0", o.config.TimeScale)
	}

	if !o.noGuests {
		o.config.Booter = rack.Guests{}
	}

	if o.fast {
		l := rack.Latencies{Start: time.Second, Stop: time.Second, Reboot: time.Second, Fail: time.Second, RestartCooldown: time.Minute}
		o.config.Latencies = &l
	}

	if err := o.readToken(); err != nil {
		return err
	}

	if err := o.readLatencies(); err != nil {
		return err
	}

	o.config.Content = rack.ContentMode(o.content)

	faults, err := o.faults.read()
	if err != nil {
		return err
	}

	o.config.Faults = faults

	logger, err := newLogger(o.logLevel)
	if err != nil {
		return err
	}

	o.config.Logger = logger

	return nil
}

// check reads the rack's description, makes an API of the configuration, and
// ends it.
func (o *rackOptions) check() (plan.Description, error) {
	if _, _, err := net.SplitHostPort(o.listen); err != nil {
		return plan.Description{}, fmt.Errorf("--listen: %w", err)
	}

	if _, _, err := net.SplitHostPort(o.control); err != nil && o.control != "" {
		return plan.Description{}, fmt.Errorf("--control-listen: %w", err)
	}

	description, err := o.setup.description()
	if err != nil {
		return plan.Description{}, err
	}

	config := o.config
	config.Pantries = setup.Pantries(description.Services.Pantry) // faults name them

	trial, err := rack.New(config)
	if err != nil {
		return plan.Description{}, err
	}

	trial.Close()

	return description, nil
}

func (o *rackOptions) readToken() error {
	switch {
	case o.token != "" && o.tokenFile != "":
		return fmt.Errorf("--token and --token-file exclude each other")
	case o.tokenFile != "":
		raw, err := os.ReadFile(o.tokenFile)
		if err != nil {
			return fmt.Errorf("reading --token-file: %w", err)
		}

		if o.token = strings.TrimSpace(string(raw)); o.token == "" {
			return fmt.Errorf("reading --token-file: %s is empty", o.tokenFile)
		}
	case o.token == "":
		o.token = "oxide-token-" + strings.ToLower(rand.Text())
	}

	o.config.Tokens = []rack.Token{{Value: o.token}}

	return nil
}

// readLatencies changes single delays.
func (o *rackOptions) readLatencies() error {
	if len(o.latencies) == 0 {
		return nil
	}

	if o.config.Latencies == nil {
		l := rack.DefaultLatencies()
		o.config.Latencies = &l
	}

	for _, setting := range o.latencies {
		if err := o.config.Latencies.Set(setting); err != nil {
			return fmt.Errorf("reading --latency: %w", err)
		}
	}

	return nil
}
