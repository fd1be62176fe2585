package rack

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
)

// Invariant: what is scanned by hand is what a JSON decoder and the standard
// decoder of base64 read.
func FuzzParseBulkWrite(f *testing.F) {
	for _, s := range []string{
		`{"offset":0,"base64_encoded_data":"AAAA"}`,
		`{"offset":0,"base64_encoded_data":"AAAAAAAAAAAAAAAAAAAAAAAAAAAA"}`,
		`{"offset":0,"base64_encoded_data":"AAAAAAAA\nAAAAAAAAAAAAAAAAAAAA"}`,
		"{\"offset\":0,\"base64_encoded_data\":\"AAAAAAAAAAAAAAAAAAAAAA\n\n\n\n\n=\"}",
		` { "base64_encoded_data" : "AA==" , "offset" : 524288 } `,
		`{"offset":01,"base64_encoded_data":""}`,
		`{"offset":1e3,"base64_encoded_data":""}`,
		`{"offset":1,"offset":2,"base64_encoded_data":""}`,
		`{"offset":18446744073709551616,"base64_encoded_data":""}`,
		`{"offset":1,"base64_encoded_data":"\u0041"}`,
		`{"offset":1,"base64_encoded_data":"AB=="}`,
		`{"offset":1,"base64_encoded_data":""}}`,
		`{"offset":1,"base64_encoded_data":"",}`,
		`{`, `{}`, ``,
	} {
		f.Add([]byte(s))
	}

	buffer := make([]byte, maxBulkWrite+16)

	f.Fuzz(func(t *testing.T, body []byte) {
		offset, text, scanned := scanBulkWrite(body)
		if !scanned {
			return
		}

		data, decoded := decodeFast(buffer, text)
		if !decoded {
			return // the general way has the last word
		}

		var want struct {
			Offset *uint64 `json:"offset"`
			Data   *string `json:"base64_encoded_data"`
		}

		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatalf("%q was scanned, but: %v", body, err)
		}

		if want.Offset == nil || *want.Offset != offset || want.Data == nil {
			t.Fatalf("%q was scanned with offset %d", body, offset)
		}

		std, err := base64.StdEncoding.Strict().DecodeString(*want.Data)
		if err != nil || !bytes.Equal(std, data) {
			t.Fatalf("%q was decoded as %q, not %q, %v", body, data, std, err)
		}
	})
}

// The quick decoder takes all that is good, of any length, and nothing else.
func TestDecodeFast(t *testing.T) {
	buffer := make([]byte, maxBulkWrite+16)

	for _, n := range []int{0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 511, 512, 513, maxBulkWrite - 1, maxBulkWrite} {
		data := noise(n)

		got, ok := decodeFast(buffer, []byte(base64.StdEncoding.EncodeToString(data)))
		if !ok || !bytes.Equal(got, data) {
			t.Errorf("%d bytes were not decoded", n)
		}
	}

	good := strings.Repeat("A", 64)

	for at := range good {
		for _, c := range []byte("\r\n =-_\x00\x80\"\\") {
			bad := []byte(good)
			bad[at] = c

			if at == len(good)-1 && c == '=' {
				continue
			}

			if _, ok := decodeFast(buffer, bad); ok {
				t.Errorf("%q was decoded", bad)
			}
		}
	}

	for _, bad := range []string{"A", "AA", "AAA", good + "AB==", good + "AAB=", good + "A===", base64.StdEncoding.EncodeToString(noise(maxBulkWrite + 16))} {
		if _, ok := decodeFast(buffer, []byte(bad)); ok {
			t.Errorf("%.80q was decoded", bad)
		}
	}
}
