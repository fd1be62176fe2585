package config

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/packet"
	pgpcrypto "github.com/ProtonMail/gopenpgp/v3/crypto"
	"github.com/siderolabs/go-api-signature/pkg/serviceaccount"
)

const (
	// providerPrefix begins the name of every provider's key; the rest of it
	// is the provider's ID.
	providerPrefix = "infra-provider:"

	// clockSkew is how far Omni lets the clocks of host and server differ.
	clockSkew = 5 * time.Minute

	shownTime = "2006-01-02 15:04 MST"
)

// omniKey judges the service-account key: Omni's client looks at it only when
// it makes the first call, and a key of somebody who is not this provider
// does harm before it is noticed.
func (l *Loader) omniKey(c *Config, wrong map[string]bool) error {
	if c.Omni.Key == "" {
		return nil // reported as not set, or as unreadable
	}

	name, expiry, err := decodeKey(c.Omni.Key.Reveal(), l.now())

	if err == nil && !wrong["provider-id"] {
		err = ownKey(name, c.Provider.ID)
	}

	if err != nil {
		o := find("omni-service-account-key")

		return fmt.Errorf("%s: %w", o.label(), err)
	}

	c.Omni.KeyExpiry = expiry

	return nil
}

// ownKey checks that the key with the name is that of this provider.
func ownKey(name, id string) error {
	other, provider := strings.CutPrefix(name, providerPrefix)

	switch {
	case !provider:
		return fmt.Errorf("is the key of %s, which is no infrastructure provider's: "+
			"make one with 'omnictl infraprovider create %s'", shown(name), id)
	case other != id:
		return fmt.Errorf("is the key of the provider %s, but the provider ID is %q (--provider-id / PROVIDER_ID)", shown(other), id)
	default:
		return nil
	}
}

// decodeKey returns whose key it is and when it expires, zero for never. No
// error has any part of the key in it.
func decodeKey(text string, now time.Time) (name string, expiry time.Time, err error) {
	const lookAgain = ": copy it again as omnictl printed it, without quotes"

	decoded, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		var at base64.CorruptInputError
		if errors.As(err, &at) && int(at) < len(text)/4*4 { // else it is the last group that lacks characters
			return "", time.Time{}, fmt.Errorf("is no base64 at character %d of %d%s", int64(at)+1, len(text), lookAgain)
		}

		return "", time.Time{}, fmt.Errorf("is base64 that ends too early, after %d characters%s", len(text), lookAgain)
	}

	var account serviceaccount.JSON
	if json.Unmarshal(decoded, &account) != nil {
		return "", time.Time{}, errors.New("is base64, but not of a service account's JSON" + lookAgain)
	}

	if account.Name == "" || account.PGPKey == "" {
		return "", time.Time{}, errors.New("is JSON without the name and pgp_key of a service account" + lookAgain)
	}

	key, err := pgpcrypto.NewKeyFromArmored(account.PGPKey)
	if err != nil {
		return "", time.Time{}, errors.New("has a pgp_key that is no armored PGP key" + lookAgain)
	}

	if unlocked, lockErr := key.IsUnlocked(); !key.IsPrivate() || lockErr != nil || !unlocked {
		return "", time.Time{}, errors.New("has a pgp_key that can not sign: it must be a private key without a passphrase")
	}

	created, expiry, err := validity(key)

	switch {
	case err != nil:
		return "", time.Time{}, err
	case !expiry.IsZero() && !now.Before(expiry):
		return "", time.Time{}, fmt.Errorf("of %s has expired on %s: renew it with 'omnictl infraprovider renewkey'",
			shown(account.Name), expiry.UTC().Format(shownTime))
	case now.Add(clockSkew).Before(created):
		return "", time.Time{}, fmt.Errorf("of %s is not valid before %s, and this host's clock says %s",
			shown(account.Name), created.UTC().Format(shownTime), now.UTC().Format(shownTime))
	}

	return account.Name, expiry, nil
}

// validity returns from when until when the key may sign.
func validity(key *pgpcrypto.Key) (created, expiry time.Time, err error) {
	entity := key.GetEntity()

	// The zero time finds the identity of a key that has expired, too.
	signature, _ := entity.PrimaryIdentity(time.Time{}, &packet.Config{})
	if signature == nil {
		return time.Time{}, time.Time{}, errors.New("has a pgp_key without a valid identity")
	}

	for _, limit := range []struct {
		from time.Time
		secs *uint32
	}{
		{entity.PrimaryKey.CreationTime, signature.KeyLifetimeSecs},
		{signature.CreationTime, signature.SigLifetimeSecs},
	} {
		if limit.secs == nil || *limit.secs == 0 {
			continue
		}

		if end := limit.from.Add(time.Duration(*limit.secs) * time.Second); expiry.IsZero() || end.Before(expiry) {
			expiry = end
		}
	}

	return entity.PrimaryKey.CreationTime, expiry, nil
}
