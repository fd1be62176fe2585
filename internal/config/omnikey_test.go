package config

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	pgpcrypto "github.com/ProtonMail/gopenpgp/v3/crypto"
	"github.com/siderolabs/go-api-signature/pkg/pgp"
	"github.com/siderolabs/go-api-signature/pkg/serviceaccount"
	"github.com/siderolabs/omni/client/pkg/access"
)

const keyLife = 24 * time.Hour

var generatedKey = sync.OnceValues(func() (*pgp.Key, error) {
	return pgp.GenerateKey("oxide", "", "oxide@infra-provider.serviceaccount.omni.sidero.dev", keyLife)
})

// keyOf returns a key as omnictl prints it.
func keyOf(t *testing.T, name string) string {
	t.Helper()

	key, err := generatedKey()
	if err != nil {
		t.Fatal(err)
	}

	encoded, err := serviceaccount.Encode(name, key)
	if err != nil {
		t.Fatal(err)
	}

	return encoded
}

func validKey(t *testing.T) string {
	t.Helper()

	return keyOf(t, "infra-provider:oxide")
}

func encode(t *testing.T, account serviceaccount.JSON) string {
	t.Helper()

	b, err := json.Marshal(account)
	if err != nil {
		t.Fatal(err)
	}

	return base64.StdEncoding.EncodeToString(b)
}

func TestPrefixIsOmnis(t *testing.T) {
	t.Parallel()

	if providerPrefix != access.InfraProviderServiceAccountPrefix {
		t.Errorf("Omni's is %q", access.InfraProviderServiceAccountPrefix)
	}
}

func TestOmniKeyMistakes(t *testing.T) {
	t.Parallel()

	key, err := generatedKey()
	if err != nil {
		t.Fatal(err)
	}

	public, err := key.ArmorPublic()
	if err != nil {
		t.Fatal(err)
	}

	private, err := key.Armor()
	if err != nil {
		t.Fatal(err)
	}

	unlocked, err := pgpcrypto.NewKeyFromArmored(private)
	if err != nil {
		t.Fatal(err)
	}

	lockedKey, err := pgpcrypto.PGP().LockKey(unlocked, []byte("passphrase"))
	if err != nil {
		t.Fatal(err)
	}

	locked, err := lockedKey.Armor()
	if err != nil {
		t.Fatal(err)
	}

	const name = "infra-provider:oxide"

	valid := validKey(t)
	again := ": copy it again as omnictl printed it, without quotes"

	for what, test := range map[string]struct{ key, want string }{
		"quoted":         {`"` + valid + `"`, "is no base64 at character 1 of "},
		"broken":         {valid[:99] + "-" + valid[100:], "is no base64 at character 100 of "},
		"cut":            {valid[:101], "is base64 that ends too early, after 101 characters" + again},
		"cut at a group": {valid[:100], "is base64, but not of a service account's JSON" + again},
		"no JSON":        {base64.StdEncoding.EncodeToString([]byte("secret")), "is base64, but not of a service account's JSON" + again},
		"other JSON":     {base64.StdEncoding.EncodeToString([]byte("{}")), "is JSON without the name and pgp_key of a service account" + again},
		"no PGP key":     {encode(t, serviceaccount.JSON{Name: name, PGPKey: "secret"}), "has a pgp_key that is no armored PGP key" + again},
		"public":         {encode(t, serviceaccount.JSON{Name: name, PGPKey: public}), "has a pgp_key that can not sign: it must be a private key without a passphrase"},
		"locked":         {encode(t, serviceaccount.JSON{Name: name, PGPKey: locked}), "has a pgp_key that can not sign: it must be a private key without a passphrase"},
		"other provider": {keyOf(t, "infra-provider:aws"), `is the key of the provider "aws", but the provider ID is "oxide" (--provider-id / PROVIDER_ID)`},
		"no provider":    {keyOf(t, "admin"), `is the key of "admin", which is no infrastructure provider's: make one with 'omnictl infraprovider create oxide'`},
	} {
		_, err = load(t, nil, environment(t, "OMNI_SERVICE_ACCOUNT_KEY", test.key))

		const label = "--omni-service-account-key-file / OMNI_SERVICE_ACCOUNT_KEY / OMNI_SERVICE_ACCOUNT_KEY_FILE: "
		if err == nil || !strings.HasPrefix(err.Error(), label+test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s%s", what, err, label, test.want)
		} else if strings.Contains(err.Error(), valid[20:60]) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error shows the key: %v", what, err)
		}
	}
}

func TestOmniKeyIsJudgedByTheClock(t *testing.T) {
	t.Parallel()

	key := validKey(t)
	now := time.Now()

	_, expiry, err := decodeKey(key, now)
	if err != nil {
		t.Fatal(err)
	}

	created := expiry.Add(-keyLife)

	if created.Sub(now).Abs() > time.Hour {
		t.Errorf("created on %s", created)
	}

	for what, test := range map[string]struct {
		now  time.Time
		want string
	}{
		"a second before it expires":    {expiry.Add(-time.Second), ""},
		"when it expires":               {expiry, `of "infra-provider:oxide" has expired on ` + expiry.UTC().Format(shownTime)},
		"a year later":                  {expiry.AddDate(1, 0, 0), `of "infra-provider:oxide" has expired on ` + expiry.UTC().Format(shownTime)},
		"within what clocks may differ": {created.Add(-4 * time.Minute), ""},
		"long before it was made":       {created.Add(-time.Hour), `of "infra-provider:oxide" is not valid before ` + created.UTC().Format(shownTime)},
	} {
		_, _, err := decodeKey(key, test.now)
		if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", what, err, test.want)
		}
	}
}

func TestOmniKeyThatNeverExpires(t *testing.T) {
	t.Parallel()

	key, err := pgp.GenerateKey("oxide", "", "oxide@example.com", 0)
	if err != nil {
		t.Fatal(err)
	}

	encoded, err := serviceaccount.Encode("infra-provider:oxide", key)
	if err != nil {
		t.Fatal(err)
	}

	name, expiry, err := decodeKey(encoded, time.Now().AddDate(50, 0, 0))
	if err != nil || !expiry.IsZero() || name != "infra-provider:oxide" {
		t.Errorf("%q, %s, %v", name, expiry, err)
	}
}

// Invariant: what we accept is what Omni's client can decode.
func TestOmniKeyIsTheClients(t *testing.T) {
	t.Parallel()

	account, err := serviceaccount.Decode(validKey(t))
	if err != nil {
		t.Fatal(err)
	}

	key, err := generatedKey()
	if err != nil {
		t.Fatal(err)
	}

	if !bytes.Equal([]byte(account.Key.Fingerprint()), []byte(key.Fingerprint())) {
		t.Error("another key")
	}
}
