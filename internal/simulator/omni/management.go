package omni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/siderolabs/image-factory/pkg/schematic"
	"github.com/siderolabs/omni/client/api/omni/management"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// factoryTimeout bounds the registration of a schematic.
const factoryTimeout = 30 * time.Second

// managementService is the part of Omni's management API that a provider uses.
// All else is Unimplemented.
type managementService struct {
	management.UnimplementedManagementServiceServer

	factory string
	http    *http.Client
	log     *zap.Logger
}

func newManagementService(config Config) *managementService {
	transport := &http.Transport{DialContext: config.FactoryDial, DisableKeepAlives: true}

	return &managementService{factory: config.FactoryURL, http: &http.Client{Transport: transport}, log: config.Log}
}

// CreateSchematicFromRaw registers a schematic at the image factory; the
// schematic must not have fields that Omni does not know.
func (m *managementService) CreateSchematicFromRaw(
	ctx context.Context, request *management.CreateSchematicFromRawRequest,
) (*management.CreateSchematicResponse, error) {
	who, err := caller(ctx)
	if err != nil {
		return nil, err
	}

	if who.role != roleInfraProvider && who.role != roleOperator && who.role != roleAdmin {
		return nil, status.Error(codes.PermissionDenied, "unauthorized: required exact roles not found")
	}

	parsed, err := schematic.Unmarshal(request.GetRawSchematic())
	if err != nil {
		return nil, fmt.Errorf("failed to unmarshal raw schematic: %w", err)
	}

	canonical, err := parsed.Marshal()
	if err != nil {
		return nil, fmt.Errorf("failed to marshal raw schematic: %w", err)
	}

	id, err := m.register(ctx, canonical)
	if err != nil {
		return nil, fmt.Errorf("failed to ensure raw schematic: %w", err)
	}

	m.log.Debug("registered a schematic", zap.String("talos.schematic", id))

	return &management.CreateSchematicResponse{SchematicId: id}, nil
}

// register posts the schematic; the factory alone knows the ID, which need not
// be the hash of what was posted.
func (m *managementService) register(ctx context.Context, body []byte) (string, error) {
	if m.factory == "" {
		return "", status.Error(codes.Unavailable, "no image factory is configured")
	}

	ctx, cancel := context.WithTimeout(ctx, factoryTimeout)
	defer cancel()

	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(m.factory, "/")+"/schematics", bytes.NewReader(body))
	if err != nil {
		return "", err
	}

	response, err := m.http.Do(request)
	if err != nil {
		return "", err
	}

	defer response.Body.Close() //nolint:errcheck // nothing depends on it

	answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return "", err
	}

	if response.StatusCode != http.StatusCreated && response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the image factory answered %s", response.Status)
	}

	var made struct {
		ID string `json:"id"`
	}

	if err := json.Unmarshal(answer, &made); err != nil || made.ID == "" {
		return "", errors.Join(err, errors.New("the image factory answered no schematic ID"))
	}

	return made.ID, nil
}

// CreateSchematic is for operators; providers are refused.
func (m *managementService) CreateSchematic(ctx context.Context, _ *management.CreateSchematicRequest) (*management.CreateSchematicResponse, error) {
	return nil, refuseOrUnimplemented(ctx, roleOperator)
}

// ListServiceAccounts is for administrators; providers are refused.
func (m *managementService) ListServiceAccounts(ctx context.Context, _ *emptypb.Empty) (*management.ListServiceAccountsResponse, error) {
	return nil, refuseOrUnimplemented(ctx, roleAdmin)
}

func refuseOrUnimplemented(ctx context.Context, needed role) error {
	who, err := caller(ctx)
	if err != nil {
		return err
	}

	if err := who.role.require(needed); err != nil {
		return err
	}

	return status.Error(codes.Unimplemented, "not simulated")
}
