package guest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	pb "github.com/siderolabs/siderolink/api/siderolink"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/link"
)

// provisionTimeout bounds the SideroLink call, as in Talos.
const provisionTimeout = 30 * time.Second

// run joins, and joins again whenever the link breaks.
func (s *session) run(ctx context.Context) power {
	var (
		wait = retryFirst
		told string
	)

	for {
		joined, next, err := s.connect(ctx)

		switch {
		case ctx.Err() != nil:
			return powerKeep
		case next != powerKeep:
			return next
		case joined:
			wait, told = retryFirst, ""

			s.log.Debug("the link broke", zap.Error(err))
		case err.Error() != told:
			told = err.Error()
			s.log.Info("the machine can not join yet", zap.Error(err))
		}

		if !s.pause(ctx, wait) {
			return powerKeep
		}

		wait = min(2*wait, retryLast)
	}
}

// connect joins once and serves the link until it ends. joined tells whether
// the link was up.
func (s *session) connect(ctx context.Context) (joined bool, next power, err error) {
	endpoint, err := s.provision(ctx)
	if err != nil {
		return false, powerKeep, err
	}

	var dialer net.Dialer

	tcp, err := dialer.DialContext(ctx, "tcp", endpoint)
	if err != nil {
		return false, powerKeep, fmt.Errorf("dialing the link: %w", err)
	}

	conn := link.NewConn(tcp)

	// Cut the power and a blocked read returns.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer conn.Close() //nolint:errcheck // the link has ended

	if err := conn.Send(link.Message{Hello: &link.Hello{
		UUID: s.hw.UUID, NodePublicKey: s.key, TalosVersion: "v" + s.image.Talos, Schematic: s.image.Schematic, Arch: s.image.Arch,
		Stage: s.stage, Hostname: s.hostname, Platform: s.platform, Addresses: s.hw.Addresses,
	}}); err != nil {
		return false, powerKeep, fmt.Errorf("greeting Omni: %w", err)
	}

	next, err = s.serve(ctx, conn)

	return true, next, err
}

// provision asks Omni to admit the machine and returns where the link is.
func (s *session) provision(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, provisionTimeout)
	defer cancel()

	token, err := s.hw.Store.uniqueToken(s.hw.UUID)
	if err != nil {
		return "", err
	}

	conn, err := grpc.NewClient(s.join.host, grpc.WithTransportCredentials(s.join.credentials))
	if err != nil {
		return "", fmt.Errorf("dialing SideroLink at %s: %w", s.join.host, err)
	}
	defer conn.Close() //nolint:errcheck // one call was made

	version := "v" + s.image.Talos
	request := &pb.ProvisionRequest{
		NodeUuid: s.hw.UUID, NodePublicKey: s.key, NodeUniqueToken: &token, TalosVersion: &version,
	}

	if s.join.token != "" {
		request.JoinToken = &s.join.token
	}

	if s.join.tunnel {
		request.WireguardOverGrpc = &s.join.tunnel
	}

	response, err := pb.NewProvisionServiceClient(conn).Provision(ctx, request)
	if err != nil {
		return "", fmt.Errorf("joining Omni: %w", err)
	}

	if len(response.GetServerEndpoint()) == 0 {
		return "", errors.New("joining Omni: it named no endpoint")
	}

	return response.GetServerEndpoint()[0], nil
}

// serve answers commands until the link breaks or a reset ends this boot.
func (s *session) serve(ctx context.Context, conn *link.Conn) (power, error) {
	for {
		message, err := conn.Receive()
		if err != nil {
			return powerKeep, err
		}

		if message.Command == nil {
			continue
		}

		next, err := s.obey(ctx, conn, *message.Command)
		if err != nil || next != powerKeep {
			return next, err
		}
	}
}

func (s *session) obey(ctx context.Context, conn *link.Conn, command link.Command) (power, error) {
	switch command.Verb {
	case link.VerbPing:
		return powerKeep, answer(conn, command, nil)
	case link.VerbApplyConfig:
		return powerKeep, s.apply(conn, command)
	case link.VerbReset:
		return s.reset(ctx, conn, command)
	}

	return powerKeep, answer(conn, command, fmt.Errorf("unknown command %q", command.Verb))
}

func answer(conn *link.Conn, command link.Command, err error) error {
	result := link.Result{Number: command.Number}
	if err != nil {
		result.Error = err.Error()
	}

	return conn.Send(link.Message{Result: &result})
}

// apply takes a machine config, as Talos' ApplyConfiguration does. One without
// the v1alpha1 document is refused.
func (s *session) apply(conn *link.Conn, command link.Command) error {
	c, err := loadConfig([]byte(command.Config))
	if err != nil {
		return answer(conn, command, err)
	}

	if !c.CompleteForBoot() {
		return answer(conn, command, errors.New("the config is not complete: it has no v1alpha1 document"))
	}

	s.hw.Store.setConfig([]byte(command.Config))
	s.stage, s.hostname = link.StageRunning, s.machine.hostname(c)

	if err := answer(conn, command, nil); err != nil {
		return err
	}

	return conn.Send(link.Message{Event: &link.Event{Stage: s.stage, Hostname: s.hostname}})
}

// reset wipes the machine and ends this boot. It is answered before it is done,
// as Talos does.
func (s *session) reset(ctx context.Context, conn *link.Conn, command link.Command) (power, error) {
	s.stage = link.StageResetting

	if err := conn.Send(link.Message{Event: &link.Event{Stage: s.stage}}); err != nil {
		return powerKeep, s.abort(err)
	}

	if err := answer(conn, command, nil); err != nil {
		return powerKeep, s.abort(err)
	}

	if !s.pause(ctx, wipeTime) {
		return powerKeep, ctx.Err()
	}

	s.hw.Store.wipe()

	if command.Reboot {
		return powerReboot, nil
	}

	return powerOff, nil
}

// abort takes a reset back whose start could not be told.
func (s *session) abort(err error) error {
	s.stage = link.StageMaintenance
	if s.hw.Store.Config() != nil {
		s.stage = link.StageRunning
	}

	return err
}
