package omni

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/packet"
	openpgp "github.com/ProtonMail/go-crypto/openpgp/v2"
	pgpcrypto "github.com/ProtonMail/gopenpgp/v3/crypto"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/go-api-signature/pkg/pgp"
	"github.com/siderolabs/go-api-signature/pkg/serviceaccount"
	"github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/access"
	"github.com/siderolabs/omni/client/pkg/omni/resources/auth"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// expiredKeyLifetime is what a key minted with a negative lifetime had lived
// when it expired.
const expiredKeyLifetime = time.Hour

// adminName is the name of the administrator's service account.
const adminName = "admin"

// MintProviderKey makes the provider if it is not there, and one more key for
// its service account, encoded as Omni hands it out. Older keys stay valid. A
// negative ttl makes a key that expired that long ago.
func (s *Server) MintProviderKey(ctx context.Context, id string, ttl time.Duration) (string, error) {
	if err := s.ensureProvider(ctx, id); err != nil {
		return "", fmt.Errorf("making provider %q: %w", id, err)
	}

	return s.mint(ctx, access.InfraProviderServiceAccountPrefix+id, roleInfraProvider, ttl)
}

// MintAdminKey makes a key of a service account with the role Admin.
func (s *Server) MintAdminKey(ctx context.Context, ttl time.Duration) (string, error) {
	return s.mint(ctx, adminName, roleAdmin, ttl)
}

// MintUserKey makes a key of a service account that is no provider's, with a
// role of Omni: "Reader", "Operator" or "Admin".
func (s *Server) MintUserKey(ctx context.Context, name, role string, ttl time.Duration) (string, error) {
	r, err := parseRole(role)
	if err != nil {
		return "", err
	}

	return s.mint(ctx, name, r, ttl)
}

func (s *Server) mint(ctx context.Context, name string, role role, ttl time.Duration) (string, error) {
	account := access.ParseServiceAccountFromName(name)

	key, err := generateKey(account.FullID(), ttl)
	if err != nil {
		return "", fmt.Errorf("generating a key for %q: %w", name, err)
	}

	public, err := key.ArmorPublic()
	if err != nil {
		return "", fmt.Errorf("encoding the public key of %q: %w", name, err)
	}

	record := auth.NewPublicKey(key.Fingerprint())
	record.Metadata().Labels().Set(auth.LabelIdentityUserID, account.FullID())

	spec := record.TypedSpec().Value
	spec.PublicKey = []byte(public)
	spec.Type = specs.PublicKeySpec_PGP
	spec.Confirmed = true
	spec.Role = role.String()
	spec.Identity = &specs.Identity{Email: account.FullID()}
	spec.Expiration = timestamppb.New(time.Now().Add(ttl))

	if err := s.state.Create(ctx, record); err != nil {
		return "", fmt.Errorf("storing the key of %q: %w", name, err)
	}

	encoded, err := serviceaccount.Encode(name, key)
	if err != nil {
		return "", fmt.Errorf("encoding the key of %q: %w", name, err)
	}

	return encoded, nil
}

// generateKey makes a key as omnictl does: EdDSA, with the lifetime in its self
// signature.
func generateKey(email string, ttl time.Duration) (*pgp.Key, error) {
	created, lifetime := time.Now(), ttl

	if ttl < 0 {
		created, lifetime = created.Add(ttl-expiredKeyLifetime), expiredKeyLifetime
	}

	seconds := uint32(lifetime / time.Second)

	entity, err := openpgp.NewEntity("", "", email, &packet.Config{
		Algorithm:       packet.PubKeyAlgoEdDSA,
		DefaultHash:     crypto.SHA256,
		DefaultCipher:   packet.CipherAES256,
		KeyLifetimeSecs: seconds,
		SigLifetimeSecs: seconds,
		Time:            func() time.Time { return created },
	})
	if err != nil {
		return nil, err
	}

	key, err := pgpcrypto.NewKeyFromEntity(entity)
	if err != nil {
		return nil, err
	}

	return pgp.NewKey(key)
}

// RevokeKeys takes all keys of a service account away, as deleting the account
// does.
func (s *Server) RevokeKeys(ctx context.Context, name string) error {
	keys, err := safe.StateListAll[*auth.PublicKey](ctx, s.state, state.WithLabelQuery(
		resource.LabelEqual(auth.LabelIdentityUserID, access.ParseServiceAccountFromName(name).FullID())))
	if err != nil {
		return err
	}

	for key := range keys.All() {
		if _, err := remove(ctx, s.state, key); err != nil {
			return err
		}
	}

	return nil
}

// keyring finds the key that a request was signed with.
type keyring struct {
	state state.State

	mu     sync.Mutex
	parsed map[string]*pgp.Key
}

var (
	errUnknownKey = errors.New("unknown key")
	errExpiredKey = errors.New("expired key")
)

// find returns the public key of that fingerprint and whose it is.
func (k *keyring) find(ctx context.Context, fingerprint string) (*pgp.Key, identity, error) {
	record, ok, err := get[*auth.PublicKey](ctx, k.state, auth.NewPublicKey(fingerprint).Metadata())
	if err != nil {
		return nil, identity{}, err
	}

	if !ok || !running(record) {
		return nil, identity{}, errUnknownKey
	}

	spec := record.TypedSpec().Value

	if spec.GetExpiration().AsTime().Before(time.Now()) {
		return nil, identity{}, errExpiredKey
	}

	key, err := k.parse(fingerprint, spec.GetPublicKey())
	if err != nil {
		return nil, identity{}, err
	}

	role, err := parseRole(spec.GetRole())
	if err != nil {
		return nil, identity{}, err
	}

	who := identity{name: spec.GetIdentity().GetEmail(), role: role}

	if account, ok := access.ParseServiceAccountFromFullID(who.name); ok && account.IsInfraProvider {
		who.provider = account.BaseName
	}

	return key, who, nil
}

func (k *keyring) parse(fingerprint string, armored []byte) (*pgp.Key, error) {
	k.mu.Lock()
	defer k.mu.Unlock()

	if key, ok := k.parsed[fingerprint]; ok {
		return key, nil
	}

	raw, err := pgpcrypto.NewKeyFromArmored(strings.TrimSpace(string(armored)))
	if err != nil {
		return nil, err
	}

	key, err := pgp.NewKey(raw)
	if err != nil {
		return nil, err
	}

	k.parsed[fingerprint] = key

	return key, nil
}

// KnowsKey says whether an encoded key is one of this Omni's and has not
// expired.
func (s *Server) KnowsKey(ctx context.Context, encoded string) bool {
	account, err := serviceaccount.Decode(encoded)
	if err != nil {
		return false
	}

	_, _, err = s.keys.find(ctx, account.Key.Fingerprint())

	return err == nil
}
