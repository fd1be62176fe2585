package provider

import (
	"context"
	"errors"
	"fmt"

	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/pkg/client"
	"github.com/siderolabs/omni/client/pkg/client/omni"
)

// Connection is Omni as a command sees it, with the provider's key.
type Connection struct {
	client   *client.Client
	state    state.State
	endpoint string
}

// Way is where Omni is, and how it is reached.
type Way struct {
	// Endpoint is the URL that people know.
	Endpoint string
	// Address is what the SDK is given in its place, as Options need it; empty for
	// Endpoint.
	Address string
	// Options are added to those of the Omni client.
	Options []client.Option
}

// address is what the SDK is given.
func (w Way) address() string {
	if w.Address != "" {
		return w.Address
	}

	return w.Endpoint
}

// Connect makes a connection and proves it. The provider ID must have been
// bound. Its error is one line for people.
func Connect(ctx context.Context, way Way, key string) (*Connection, error) {
	c, err := client.New(way.address(), append([]client.Option{
		client.WithServiceAccount(key), client.WithOmniClientOptions(omni.WithProviderID(providerID())),
	}, way.Options...)...)
	if err != nil {
		return nil, fmt.Errorf("making the Omni client: %w", err)
	}

	conn := &Connection{client: c, state: c.Omni().State(), endpoint: way.Endpoint}

	if _, err := readVersion(ctx, conn.state); err != nil {
		_ = c.Close()

		return nil, conn.Explain(err)
	}

	return conn, nil
}

// Close ends it.
func (c *Connection) Close() { _ = c.client.Close() }

// Records are what Omni holds of this provider's requests.
func (c *Connection) Records() *Records {
	return &Records{State: func() state.State { return c.state }}
}

// Owner is the owner of this provider's objects in the rack.
func (c *Connection) Owner(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, omniDeadline)
	defer cancel()

	owner, err := readOwner(ctx, c.state)
	if state.IsNotFoundError(err) {
		return "", fmt.Errorf("no owner is stored in Omni for provider %q: it has never run, or the owner resource was deleted; start the daemon once", providerID())
	}

	if err != nil {
		return "", c.Explain(err)
	}

	return owner, nil
}

// Explain words an error of Omni's for people.
func (c *Connection) Explain(err error) error {
	_, text := omniTrouble(c.endpoint, err)

	return errors.New(text)
}

// Version is that of Omni.
func (c *Connection) Version(ctx context.Context) (string, error) {
	v, err := readVersion(ctx, c.state)
	if err != nil {
		return "", c.Explain(err)
	}

	return v, nil
}

// FactoryURL is the image factory that Omni names, else the public one.
func (c *Connection) FactoryURL(ctx context.Context) (string, error) {
	base, _, err := factories{state: func() state.State { return c.state }}.find(ctx)
	if err != nil {
		return "", c.Explain(err)
	}

	return base, nil
}
