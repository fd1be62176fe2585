package rack

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Each delay can be set by its name, and nothing else can.
func TestLatenciesAreSet(t *testing.T) {
	l := DefaultLatencies()

	for _, setting := range []string{"disk_create=2s", "external_ip=1m", "restart_cooldown=0s"} {
		must(0, l.Set(setting))(t)
	}

	if l.DiskCreate != 2*time.Second || l.ExternalIP != time.Minute || l.RestartCooldown != 0 || l.DiskDelete != DefaultLatencies().DiskDelete {
		t.Errorf("%+v", l)
	}

	for setting, want := range map[string]string{
		"disk=2s":         `"disk" is no delay: there are bulk_write, disk_create,`,
		"disk_create":     `disk_create is ""`,
		"disk_create=-1s": `disk_create is "-1s"`,
		"disk_create=x":   `disk_create is "x"`,
	} {
		if err := l.Set(setting); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", setting, err)
		}
	}
}

// Invariant: each saga takes the delay of its own kind, scaled, and no other;
// what happens after an answer takes its own.
func TestEachSagaTakesItsOwnDelay(t *testing.T) {
	const (
		disk     = `{"name":"d","description":"","size":1073741824,"disk_backend":{"type":"distributed","disk_source":{"type":"blank","block_size":512}}}`
		imported = `{"name":"m","description":"","size":1073741824,"disk_backend":{"type":"distributed","disk_source":{"type":"importing_blocks","block_size":512}}}`
		image    = `{"name":"i","description":"","os":"o","version":"v","source":{"type":"snapshot","id":"SNAPSHOT"}}`
		instance = `{"name":"i","description":"","hostname":"i","ncpus":1,"memory":1073741824,"start":false}`
	)

	// In this order each call finds what it needs.
	steps := []struct {
		method, path, body string
		kinds              []string // whose delays add up
	}{
		{"POST", "/v1/projects", `{"name":"p","description":""}`, []string{"project_create"}},
		{"POST", "/v1/vpcs?project=p", `{"name":"v","description":"","dns_name":"v"}`, []string{"network_create"}},
		{"POST", "/v1/vpc-subnets?project=p&vpc=v", `{"name":"s","description":"","ipv4_block":"10.0.0.0/24"}`, []string{"network_create"}},
		{"POST", "/v1/disks?project=p", disk, []string{"disk_create"}},
		{"POST", "/v1/snapshots?project=p", `{"name":"s","description":"","disk":"d"}`, []string{"snapshot_create"}},
		{"POST", "/v1/images?project=p", image, []string{"image_create"}},
		{"POST", "/v1/disks?project=p", imported, []string{"disk_create"}},
		{"POST", "/v1/disks/m/bulk-write-start?project=p", "", nil},
		{"POST", "/v1/disks/m/bulk-write?project=p", `{"offset":0,"base64_encoded_data":""}`, []string{"bulk_write"}},
		{"POST", "/v1/disks/m/bulk-write-stop?project=p", "", nil},
		{"POST", "/v1/disks/m/finalize?project=p", `{"snapshot_name":"f"}`, []string{"snapshot_create", "finalize"}},
		{"POST", "/v1/instances?project=p", instance, []string{"instance_create"}},
		{"POST", "/v1/instances/i/external-ips/ephemeral?project=p", `{}`, []string{"external_ip"}},
		{"DELETE", "/v1/instances/i/external-ips/ephemeral?project=p", "", []string{"external_ip"}},
		{"POST", "/v1/instances/i/start?project=p", "", []string{"instance_start"}},
		{"", "running", "", []string{"start"}},
		{"POST", "/v1/instances/i/reboot?project=p", "", nil},
		{"", "running", "", []string{"reboot"}},
		{"POST", "/v1/instances/i/stop?project=p", "", nil},
		{"", "stopped", "", []string{"stop"}},
		{"DELETE", "/v1/instances/i?project=p", "", []string{"instance_delete"}},
		{"DELETE", "/v1/images/i?project=p", "", []string{"image_delete"}},
		{"DELETE", "/v1/snapshots/s?project=p", "", []string{"snapshot_delete"}},
		{"DELETE", "/v1/disks/d?project=p", "", []string{"disk_delete"}},
	}

	synctest.Test(t, func(t *testing.T) {
		// No two sums of these are the same.
		var latencies Latencies

		delays := map[string]time.Duration{}
		next := 2 * time.Second

		for field, to := range reflect.ValueOf(&latencies).Elem().Fields() {
			to.SetInt(int64(next))
			delays[snake(field.Name)] = next / 2
			next *= 2
		}

		s, err := New(Config{Latencies: &latencies, TimeScale: 0.5})
		must(0, err)(t)
		defer s.Close()

		do := func(method, path, body string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			req := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
			req.Header.Set("Authorization", "Bearer "+DefaultToken)
			s.ServeHTTP(w, req)

			return w
		}

		for _, step := range steps {
			var want time.Duration
			for _, k := range step.kinds {
				want += delays[k]
			}

			began := time.Now()

			if step.method == "" {
				time.Sleep(want - 1)
				synctest.Wait()

				if !strings.Contains(do("GET", "/v1/instances/i?project=p", "").Body.String(), `"run_state":"`+step.path) {
					time.Sleep(time.Nanosecond)
					synctest.Wait()
				} else {
					t.Errorf("%s before %s", step.path, want)
				}

				if got := do("GET", "/v1/instances/i?project=p", "").Body.String(); !strings.Contains(got, `"run_state":"`+step.path) {
					t.Fatalf("not %s after %s: %s", step.path, want, got)
				}

				continue
			}

			body := step.body
			if strings.Contains(body, "SNAPSHOT") {
				for id := range s.snapshots.byID {
					body = strings.Replace(body, "SNAPSHOT", id, 1)
				}
			}

			w := do(step.method, step.path, body)
			if took := time.Since(began); w.Code >= http.StatusBadRequest || took != want {
				t.Errorf("%s %s took %s, want %s of %q: %d %s", step.method, step.path, took, want, step.kinds, w.Code, w.Body)
			}
		}

		// Those of a lost VM, a migration and a restart have tests of their own.
		var tried []string
		for _, step := range steps {
			tried = append(tried, step.kinds...)
		}

		for k := range delays {
			if !slices.Contains(tried, k) && !slices.Contains([]string{"fail", "migrate", "restart_cooldown"}, k) {
				t.Errorf("the delay %s is not tried", k)
			}
		}
	})
}
