package omni

import (
	"context"
	"errors"
	"fmt"

	"github.com/siderolabs/go-api-signature/pkg/message"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// role is an Omni-wide role; a higher one may all that a lower one may, outside
// of the providers' namespaces.
type role int

const (
	roleNone role = iota
	roleInfraProvider
	roleReader
	roleAuditor
	roleOperator
	roleAdmin
)

var roleNames = map[role]string{
	roleNone:          "None",
	roleInfraProvider: "InfraProvider",
	roleReader:        "Reader",
	roleAuditor:       "Auditor",
	roleOperator:      "Operator",
	roleAdmin:         "Admin",
}

func (r role) String() string { return roleNames[r] }

func parseRole(name string) (role, error) {
	for r, n := range roleNames {
		if n == name {
			return r, nil
		}
	}

	return roleNone, fmt.Errorf("unknown role %q", name)
}

// require refuses a caller whose role is lower than the one needed.
func (r role) require(needed role) error {
	if r < needed {
		return status.Errorf(codes.PermissionDenied, "unauthorized: access denied: insufficient role: %q", r)
	}

	return nil
}

// identity is who signed a request. provider is set for the service account of
// an infrastructure provider.
type identity struct {
	name     string
	provider string
	role     role
}

type identityKey struct{}

func withIdentity(ctx context.Context, who identity) context.Context {
	return context.WithValue(ctx, identityKey{}, who)
}

// caller returns who signed the request of that context.
func caller(ctx context.Context) (identity, error) {
	who, ok := ctx.Value(identityKey{}).(identity)
	if !ok {
		return identity{}, status.Error(codes.Unauthenticated, "unauthenticated: missing valid signature")
	}

	return who, nil
}

var errInvalidSignature = status.Error(codes.Unauthenticated, "invalid signature")

// authenticate verifies the signature of a request: over its method, its signed
// headers and a timestamp that may be five minutes off, by a key that Omni
// knows, made for the account that it names.
func (k *keyring) authenticate(ctx context.Context, method string, log *zap.Logger) (context.Context, identity, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	msg := message.NewGRPC(md, method)

	signature, err := msg.Signature()
	if err != nil {
		log.Debug("a request without a usable signature", zap.String("omni.method", method), zap.Error(err))

		return ctx, identity{}, errInvalidSignature
	}

	key, who, err := k.find(ctx, signature.KeyFingerprint)
	if err == nil {
		err = msg.VerifySignature(key)
	}

	if err == nil && key.IsExpired(0) {
		err = errExpiredKey
	}

	if err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return ctx, identity{}, status.Error(codes.Canceled, "the caller has gone")
		}

		log.Debug("a signature was refused", zap.String("omni.identity", signature.Identity), zap.Error(err))

		return ctx, identity{}, errInvalidSignature
	}

	return withIdentity(ctx, who), who, nil
}
