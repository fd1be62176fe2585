package factory_test

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/factory"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/talos"
)

// Each fault is seen by a client for what it plays, as often as it says.
func TestFaults(t *testing.T) {
	const goesOn = "goes on"

	s := start(t, factory.Config{})

	whole, _, err := fetch(t, imageAt(s))
	if err != nil {
		t.Fatal(err)
	}

	for name, test := range map[string]struct {
		fault factory.Fault
		kind  talos.Kind
		text  string
	}{
		"500":        {factory.Fault{Kind: factory.KindStatus, Status: 500}, talos.KindServer, "500"},
		"429":        {factory.Fault{Kind: factory.KindStatus, Status: 429, RetryAfter: 20 * time.Second}, talos.KindRetryLater, "20s"},
		"503 a date": {factory.Fault{Kind: factory.KindStatus, Status: 503, RetryAfter: time.Hour, RetryDate: true}, talos.KindRetryLater, "h"},
		"404":        {factory.Fault{Kind: factory.KindStatus, Status: 404}, talos.KindNotFound, "does not know"},
		"html":       {factory.Fault{Kind: factory.KindHTML}, talos.KindContent, "HTML"},
		"truncated":  {factory.Fault{Kind: factory.KindTruncate, Bytes: 300_000}, 0, goesOn},
		"cut":        {factory.Fault{Kind: factory.KindTruncate}, talos.KindTransport, "without an answer"},
		"corrupt":    {factory.Fault{Kind: factory.KindCorrupt, Bytes: 200_000}, talos.KindContent, ""},
		"stalled":    {factory.Fault{Kind: factory.KindStall, Bytes: 200_000}, 0, goesOn},
	} {
		test.fault.Times, test.fault.Skip = 2, 1
		s.Inject(test.fault)

		if _, _, err := fetch(t, imageAt(s)); err != nil {
			t.Errorf("%s: the first request was to pass: %v", name, err)
		}

		for range 2 {
			raw, _, err := fetch(t, imageAt(s))

			// What breaks off goes on where it was.
			if test.text == goesOn {
				if err != nil || !bytes.Equal(raw, whole) {
					t.Errorf("%s: %d bytes of %d, %v", name, len(raw), len(whole), err)
				}

				continue
			}

			var fe *talos.FactoryError
			if !errors.As(err, &fe) || fe.Kind != test.kind || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%s: %v", name, err)
			}
		}

		if _, _, err := fetch(t, imageAt(s)); err != nil {
			t.Errorf("%s: it did not end: %v", name, err)
		}
	}
}

func TestForgottenSchematicsComeBackWhenPosted(t *testing.T) {
	s := start(t, factory.Config{})
	s.Inject(factory.Fault{Kind: factory.KindForget, Times: 1})

	for range 2 {
		var fe *talos.FactoryError
		if _, _, err := fetch(t, imageAt(s)); !errors.As(err, &fe) || fe.Kind != talos.KindNotFound {
			t.Fatal(err)
		}
	}

	if _, err := s.Register([]byte("customization: {}")); err != nil {
		t.Fatal(err)
	}

	if _, _, err := fetch(t, imageAt(s)); err != nil {
		t.Fatal(err)
	}
}

func TestTheStorageWantsItsSignature(t *testing.T) {
	s := start(t, factory.Config{})
	s.Inject(factory.Fault{Kind: factory.KindRedirect})

	url := s.URL() + "/image/" + empty + "/v1.13.5/nocloud-amd64.raw"

	code, header, _ := call(t, http.MethodGet, url, "", nil)

	location := header.Get("Location")
	if code != http.StatusFound || !strings.HasPrefix(location, s.StorageURL()+"/") {
		t.Fatal(code, location)
	}

	if code, _, _ := call(t, http.MethodHead, url, "", nil); code != http.StatusOK {
		t.Error("HEAD is redirected:", code)
	}

	if code, _, body := call(t, http.MethodGet, location, "", http.Header{"Range": {"bytes=510-511"}}); code != http.StatusPartialContent || body != "\x55\xaa" {
		t.Errorf("%d %q", code, body)
	}

	if code, _, _ := call(t, http.MethodGet, strings.Replace(location, "signature=", "signature=0", 1), "", nil); code != http.StatusForbidden {
		t.Error(code)
	}

	if code, _, _ := call(t, http.MethodGet, location, "", http.Header{"Authorization": {"Bearer x"}}); code != http.StatusBadRequest {
		t.Error(code)
	}
}

func TestDownloadsAreHeldToARate(t *testing.T) {
	s := start(t, factory.Config{Rate: 20 << 20})
	began := time.Now()

	call(t, http.MethodGet, s.URL()+"/image/"+empty+"/v1.13.5/nocloud-amd64.raw", "", nil)

	if took := time.Since(began); took < 140*time.Millisecond {
		t.Errorf("3 MiB at 20 MiB/s took %s", took)
	}
}

func TestFaultsAreInjectedOverTheWire(t *testing.T) {
	s := start(t, factory.Config{})
	url := s.URL() + "/simulator/faults"

	if code, _, body := call(t, http.MethodPost, url, `[{"kind":"status","status":500,"match":"/schematics"}]`, nil); code != http.StatusNoContent {
		t.Fatal(code, body)
	}

	if code, _, _ := call(t, http.MethodPost, s.URL()+"/schematics", "customization: {}", nil); code != http.StatusInternalServerError {
		t.Fatal(code)
	}

	if code, _, _ := call(t, http.MethodDelete, url, "", nil); code != http.StatusNoContent {
		t.Fatal(code)
	}

	if code, _, _ := call(t, http.MethodPost, s.URL()+"/schematics", "customization: {}", nil); code != http.StatusCreated {
		t.Fatal(code)
	}

	if code, _, _ := call(t, http.MethodPost, url, `[{"kind":"status","sttus":500}]`, nil); code != http.StatusBadRequest {
		t.Fatal(code)
	}
}
