package rack

import (
	"encoding/base64"
	"encoding/json"
	"testing"
)

// Invariant: what is scanned by hand is what a JSON decoder reads.
func FuzzParseBulkWrite(f *testing.F) {
	for _, s := range []string{
		`{"offset":0,"base64_encoded_data":"AAAA"}`,
		` { "base64_encoded_data" : "AA==" , "offset" : 524288 } `,
		`{"offset":01,"base64_encoded_data":""}`,
		`{"offset":1e3,"base64_encoded_data":""}`,
		`{"offset":1,"offset":2,"base64_encoded_data":""}`,
		`{"offset":18446744073709551616,"base64_encoded_data":""}`,
		`{"offset":1,"base64_encoded_data":"\u0041"}`,
		`{"offset":1,"base64_encoded_data":""}}`,
		`{"offset":1,"base64_encoded_data":"",}`,
		`{`, `{}`, ``,
	} {
		f.Add([]byte(s))
	}

	f.Fuzz(func(t *testing.T, body []byte) {
		w, scanned := scanBulkWrite(body)
		if !scanned {
			return
		}

		if _, err := base64.StdEncoding.Strict().DecodeString(string(w.data)); err != nil {
			return // refused in any case
		}

		var want struct {
			Offset *uint64 `json:"offset"`
			Data   *string `json:"base64_encoded_data"`
		}

		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatalf("%q was scanned, but: %v", body, err)
		}

		if want.Offset == nil || *want.Offset != w.offset || want.Data == nil || *want.Data != string(w.data) {
			t.Fatalf("%q was scanned as %d %q", body, w.offset, w.data)
		}
	})
}
