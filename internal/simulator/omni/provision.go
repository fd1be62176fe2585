package omni

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/jointoken"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"github.com/siderolabs/omni/client/pkg/omni/resources/siderolink"
	pb "github.com/siderolabs/siderolink/api/siderolink"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// provisioner is SideroLink's provision service, where machines join.
//
// Its rule of unique tokens is simple: a machine that presents one must present
// the same again. The dance by which Omni gives machines their tokens is left
// out.
type provisioner struct {
	pb.UnimplementedProvisionServiceServer

	server *Server
}

var errUnauthorized = status.Error(codes.PermissionDenied, "unauthorized")

// Provision admits a machine whose join token is valid.
func (p *provisioner) Provision(ctx context.Context, request *pb.ProvisionRequest) (*pb.ProvisionResponse, error) {
	token, err := p.checkToken(ctx, request.GetJoinToken())
	if err != nil {
		return nil, err
	}

	if request.GetNodeUuid() == "" || request.GetNodePublicKey() == "" {
		return nil, status.Error(codes.InvalidArgument, "a machine needs a UUID and a public key to join")
	}

	if err := p.checkProvider(ctx, token.ExtraData[omni.LabelInfraProviderID]); err != nil {
		return nil, err
	}

	if err := p.checkUniqueToken(ctx, request); err != nil {
		return nil, err
	}

	subnet, err := p.establish(ctx, request, token)
	if err != nil {
		return nil, err
	}

	p.server.log.Debug("a machine was admitted", zap.String("omni.machine.id", request.GetNodeUuid()),
		zap.String("omni.request.id", token.ExtraData[omni.LabelMachineRequest]))

	return &pb.ProvisionResponse{
		ServerEndpoint:    []string{p.server.LinkEndpoint()},
		ServerPublicKey:   publicKey("server"),
		NodeAddressPrefix: subnet,
		ServerAddress:     serverAddress,
	}, nil
}

// checkToken verifies a join token: v2 with the provider's own secret, v1 and
// plain with the account's.
func (p *provisioner) checkToken(ctx context.Context, text string) (jointoken.JoinToken, error) {
	token, err := jointoken.Parse(text)
	if err != nil {
		return token, status.Errorf(codes.PermissionDenied, "invalid join token %s", err)
	}

	var secret string

	if provider, ok := token.ExtraData[omni.LabelInfraProviderID]; ok && token.Version == jointoken.Version2 {
		config, found, err := get[*siderolink.ProviderJoinConfig](ctx, p.server.state, siderolink.NewProviderJoinConfig(provider).Metadata())
		if err != nil {
			return token, err
		}

		if found {
			secret = config.TypedSpec().Value.GetJoinToken()
		}
	} else if secret, err = p.server.defaultJoinToken(ctx); err != nil {
		return token, err
	}

	if secret == "" || !token.IsValid(secret) {
		return token, errUnauthorized
	}

	return token, nil
}

func (s *Server) defaultJoinToken(ctx context.Context) (string, error) {
	token, ok, err := get[*siderolink.DefaultJoinToken](ctx, s.state, siderolink.NewDefaultJoinToken().Metadata())
	if err != nil || !ok {
		return "", errors.Join(err, status.Error(codes.Internal, "there is no default join token"))
	}

	return token.TypedSpec().Value.GetTokenId(), nil
}

func (p *provisioner) checkProvider(ctx context.Context, id string) error {
	if id == "" {
		return nil
	}

	provider, ok, err := get[*infra.Provider](ctx, p.server.state, infra.NewProvider(id).Metadata())
	if err != nil {
		return err
	}

	if !ok || !running(provider) {
		return status.Error(codes.NotFound, "the infra provider is being deleted or doesn't exist")
	}

	return nil
}

func (p *provisioner) checkUniqueToken(ctx context.Context, request *pb.ProvisionRequest) error {
	presented := request.GetNodeUniqueToken()
	if presented == "" {
		return nil
	}

	return modify(ctx, p.server.state, siderolink.NewNodeUniqueToken(request.GetNodeUuid()), "", func(r *siderolink.NodeUniqueToken) error {
		if known := r.TypedSpec().Value.GetToken(); known != "" && known != presented {
			return errUnauthorized
		}

		r.TypedSpec().Value.Token = presented

		return nil
	})
}

// establish makes or renews the link and returns the machine's address.
func (p *provisioner) establish(ctx context.Context, request *pb.ProvisionRequest, token jointoken.JoinToken) (string, error) {
	empty := siderolink.NewLink(request.GetNodeUuid(), &specs.SiderolinkSpec{})

	subnet, err := nodeSubnet(request.GetNodeUuid())
	if err != nil {
		return "", err
	}

	err = modify(ctx, p.server.state, empty, "", func(link *siderolink.Link) error {
		if link.Metadata().Phase() == resource.PhaseTearingDown {
			return status.Error(codes.AlreadyExists, "the machine with the same UUID is already registered in Omni and is in the tearing down phase")
		}

		// A machine keeps the labels that it first joined with.
		if link.Metadata().Version().Equal(resource.VersionUndefined) {
			for _, key := range []string{omni.LabelInfraProviderID, omni.LabelMachineRequest} {
				if value, ok := token.ExtraData[key]; ok {
					link.Metadata().Labels().Set(key, value)
				}
			}
		}

		spec := link.TypedSpec().Value
		spec.NodePublicKey = request.GetNodePublicKey()
		spec.NodeSubnet = subnet
		spec.Connected = true

		return nil
	})
	if state.IsConflictError(err) {
		return "", status.Error(codes.Unavailable, "the machine joins twice at once")
	}

	return subnet, err
}

// nodeSubnet derives a machine's address in the tunnel from its UUID.
func nodeSubnet(uuid string) (string, error) {
	prefix, err := netip.ParsePrefix(serverSubnet)
	if err != nil {
		return "", fmt.Errorf("parsing the tunnel's subnet: %w", err)
	}

	address, sum := prefix.Addr().As16(), sha256.Sum256([]byte(uuid))
	copy(address[8:], sum[:8])

	return netip.PrefixFrom(netip.AddrFrom16(address), 64).String(), nil
}

// publicKey makes what looks like a WireGuard key; nothing is encrypted.
func publicKey(of string) string {
	sum := sha256.Sum256([]byte(of))

	return base64.StdEncoding.EncodeToString(sum[:])
}
