// Package naming turns the identifiers of Omni and of the image factory into
// what the rack stores about an object: its name, and the ownership mark at
// the end of its description.
//
// Both are stored formats. An object made by one release is found again by
// every later one through its name and recognised as ours through its mark,
// so neither may ever change for the same input; testdata/golden.txt holds
// them to that.
//
// A name only finds an object. It never proves ownership: anybody may take
// any name. The mark proves it.
package naming

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"strings"
)

// maxName is the rack's limit for the name of an object.
const maxName = 63

// base32Lower has only characters that the rack allows in names.
var base32Lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewOwner returns a new random owner ID: 26 lower-case base32 characters.
func NewOwner() string { return strings.ToLower(rand.Text()) }

// NewRun returns a new random run ID: 8 hexadecimal digits.
func NewRun() string {
	var b [4]byte

	_, _ = rand.Read(b[:]) // never fails, by crypto/rand's contract

	return hex.EncodeToString(b[:])
}

// RequestKey is the key in the marks of everything made for a machine
// request: the first 32 hexadecimal digits of SHA-256 over its ID.
func RequestKey(requestID string) string {
	sum := sha256.Sum256([]byte(requestID))

	return hex.EncodeToString(sum[:16])
}

// hashed returns n base32 characters of SHA-256 over the parts. The parts are
// separated, so that ("ab", "c") and ("a", "bc") differ.
func hashed(n int, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))

	return base32Lower.EncodeToString(sum[:])[:n]
}
