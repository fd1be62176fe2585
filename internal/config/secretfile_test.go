package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Secrets are never printed, not even when one stands where its file's path
// belongs.
func TestASecretInPlaceOfItsPathIsNotPrinted(t *testing.T) {
	t.Parallel()

	for _, secret := range []string{
		"oxide-token-0123456789abcdef", "eyJuYW1lIjoiaW5mcmEtcHJvdmlkZXI6b3hpZGUiLCJwZ3Bfa2V5Ijoi" + strings.Repeat("x/+=", 400),
		"two\nlines",
	} {
		_, err := readSecret(secret)
		if err == nil || strings.Contains(err.Error(), secret[:5]) || !strings.Contains(err.Error(), "is this the secret") && len(secret) < 200 {
			t.Errorf("got %v", err)
		}
	}
}

func TestAFileIsTold(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	two := filepath.Join(dir, "two")

	if err := os.WriteFile(two, []byte("oxide-token-1\noxide-token-2\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	for path, want := range map[string]string{
		dir + "/missing": "missing can not be found",
		dir:              "is a directory",
		two:              "has more than one line",
	} {
		if _, err := readSecret(path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "oxide-token") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
