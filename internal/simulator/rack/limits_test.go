package rack

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/oxidecomputer/oxide.go/oxide"
)

// limit is one of the rack's: do succeeds with the value at, and is refused
// with the value beyond. Each is tried on a rack of its own.
type limit struct {
	what       string
	at, beyond int64
	do         func(r *rig, n int64) error
	status     int
	code, part string
}

// refusal is an answer to a call that oxide.go would not make.
type refusal struct {
	status int
	errorBody
}

func (e *refusal) Error() string { return fmt.Sprintf("%d %s: %s", e.status, e.ErrorCode, e.Message) }

// post makes a create call with any body.
func (r *rig) post(path string, body any) error {
	raw, isText := body.(string)
	if !isText {
		raw = string(must(json.Marshal(body))(r.t))
	}

	if status, e, _ := r.raw("POST", path, raw); status >= 400 {
		return &refusal{status, e}
	}

	return nil
}

func named(fields ...any) map[string]any {
	out := map[string]any{"name": "x", "description": ""}
	for n := 0; n+1 < len(fields); n += 2 {
		out[fmt.Sprint(fields[n])] = fields[n+1]
	}

	return out
}

func (r *rig) instanceWith(change func(*oxide.InstanceCreate)) error {
	return r.post("/v1/instances?project=demo", wanted("i", change))
}

// The limits of names, texts, bodies and pages.
func TestLimitsOfTexts(t *testing.T) {
	hostname := func(r *rig, n int64) error {
		return r.instanceWith(func(b *oxide.InstanceCreate) { b.Hostname = oxide.Hostname(strings.Repeat("a", int(n))) })
	}

	tryLimits(t, []limit{
		{"characters of a name", 63, 64, func(r *rig, n int64) error {
			return r.post("/v1/projects", named("name", strings.Repeat("a", int(n))))
		}, 400, "", "at most 63"},
		{"least characters of a name", 1, 0, func(r *rig, n int64) error {
			return r.post("/v1/projects", named("name", strings.Repeat("a", int(n))))
		}, 400, "", "at least one"},
		{"characters of a description", 512, 513, func(r *rig, n int64) error {
			return r.post("/v1/projects", named("description", text(int(n))))
		}, 500, "Internal", "Internal Server Error"},
		{"characters of a hostname", 253, 254, hostname, 400, "", "between 1 and 253"},
		{"least characters of a hostname", 1, 0, hostname, 400, "", "between 1 and 253"},
		{"bytes of a body", 1 << 20, 1<<20 + 1, func(r *rig, n int64) error {
			body := string(must(json.Marshal(named()))(r.t))

			return r.post("/v1/projects", body+strings.Repeat(" ", int(n)-len(body)))
		}, 400, "", "maximum size of 1048576 bytes"},
		{"bytes of a bulk write's body", 8 << 20, 8<<20 + 1, func(r *rig, n int64) error {
			d := r.disk("d", gib, importing())
			must(0, r.start(d.Id))(r.t)

			const body = `{"offset":0,"base64_encoded_data":""}`

			return r.post("/v1/disks/"+d.Id+"/bulk-write", body+strings.Repeat(" ", int(n)-len(body)))
		}, 400, "", "maximum size of 8388608 bytes"},
		{"least items of a page", 1, 0, func(r *rig, n int64) error {
			if status, e, _ := r.raw("GET", fmt.Sprintf("/v1/projects?limit=%d", n), ""); status != 200 {
				return &refusal{status, e}
			}

			return nil
		}, 400, "", "nonzero"},
	})
}

// The limits of disks, snapshots and images.
func TestLimitsOfStorage(t *testing.T) {
	disk := func(backend func() oxide.DiskBackend) func(r *rig, n int64) error {
		return func(r *rig, n int64) error {
			_, err := r.createDisk("d", n, backend())

			return err
		}
	}
	plain := disk(func() oxide.DiskBackend { return blank(0) })
	write := func(offset, n int64) func(r *rig, _ int64) error {
		return func(r *rig, more int64) error {
			d := r.disk("d", gib, importing())
			must(0, r.start(d.Id))(r.t)

			return r.write(d.Id, uint64(offset+more), noise(int(n)))
		}
	}
	fromSnapshot := func(readOnly bool) func(r *rig, n int64) error {
		return func(r *rig, n int64) error {
			s := r.upload("up", 2*gib, noise(512))
			_, err := r.createDisk("d", n, source(0, oxide.DiskSource{Value: &oxide.DiskSourceSnapshot{
				SnapshotId: s.Id, ReadOnly: &readOnly,
			}}))

			return err
		}
	}
	image := func(field string) func(r *rig, n int64) error {
		return func(r *rig, n int64) error {
			body := named("os", "talos", "version", "1", "source", map[string]string{"type": "snapshot", "id": r.upload("up", gib, noise(512)).Id})
			body[field] = text(int(n))

			return r.post("/v1/images?project=demo", body)
		}
	}

	tryLimits(t, []limit{
		{"least bytes of a disk", gib, gib - 512, plain, 400, "InvalidValue", `unsupported value for "size"`},
		{"whole GiB of a disk", 2 * gib, 2*gib + 512, plain, 400, "InvalidValue", `unsupported value for "size"`},
		{"bytes of a distributed disk", 1023 * gib, 1024 * gib, plain, 400, "InvalidValue", `unsupported value for "size"`},
		{"whole GiB of a local disk", 2048 * gib, 2048*gib + 1, disk(local), 400, "InvalidValue", `unsupported value for "size"`},
		{"bytes of a block", 4096, 8192, func(r *rig, n int64) error {
			return r.post("/v1/disks?project=demo", named("size", gib, "disk_backend", map[string]any{
				"type": "distributed", "disk_source": map[string]any{"type": "blank", "block_size": n},
			}))
		}, 400, "", "invalid block size"},
		{"bytes of a chunk", 512 << 10, 512<<10 + 512, func(r *rig, n int64) error { return write(0, n)(r, 0) }, 400, "InvalidRequest", "larger than the maximum"},
		{"blocks of a chunk", 512, 513, func(r *rig, n int64) error { return write(0, n)(r, 0) }, 400, "InvalidRequest", "not a multiple"},
		{"blocks before a chunk", 512, 511, write(0, 512), 400, "InvalidRequest", "not a multiple"},
		{"end of the disk", 0, 512, write(gib-512, 512), 400, "InvalidRequest", "beyond the disk's size"},
		{"least bytes of a disk from a snapshot", 2 * gib, gib, fromSnapshot(false), 400, "InvalidRequest", "greater than or equal"},
		{"bytes of a read-only disk", 2 * gib, 3 * gib, fromSnapshot(true), 400, "InvalidRequest", "equal"},
		{"silo's storage for disks", 4 * gib, 5 * gib, func(r *rig, n int64) error {
			r.cfg.Quota.Storage = 4 * gib

			return plain(r, n)
		}, 507, "InsufficientCapacity", "Storage Limit Exceeded"},
		{"silo's storage for snapshots", 2 * gib, 3 * gib, func(r *rig, n int64) error {
			r.cfg.Quota.Storage = 4*gib + 1
			d := r.disk("d", n, blank(0))
			_, err := r.client.SnapshotCreate(r.t.Context(), oxide.SnapshotCreateParams{Project: demo, Body: &oxide.SnapshotCreate{Name: "s", Disk: oxide.NameOrId(d.Id)}})

			return err
		}, 507, "InsufficientCapacity", "Storage Limit Exceeded"},
		{"rack's disks, three times over", 2 * gib, 3 * gib, func(r *rig, n int64) error {
			r.cfg.RackStorage = 6 * gib

			return plain(r, n)
		}, 507, "InsufficientCapacity", "Not enough storage"},
		{"characters of an image's OS", 64, 65, image("os"), 500, "Internal", ""},
		{"characters of an image's version", 64, 65, image("version"), 500, "Internal", ""},
	})
}

// A page has 10,000 items at most, however many are asked for.
func TestLargestPage(t *testing.T) {
	r := newRig(t)

	for n := range maxPage + 1 {
		must(0, r.AddSSHKey("provider", fmt.Sprintf("k%d", n), "ssh-ed25519 AAAA"))(t)
	}

	for limit, want := range map[int]int{maxPage: maxPage, maxPage + 1: maxPage, 1_000_000_000: maxPage} {
		page := must(r.client.CurrentUserSshKeyList(t.Context(), oxide.CurrentUserSshKeyListParams{Limit: &limit}))(t)
		if len(page.Items) != want {
			t.Errorf("asked for %d there are %d", limit, len(page.Items))
		}
	}
}

func tryLimits(t *testing.T, all []limit) {
	t.Helper()

	for _, l := range all {
		t.Run(l.what, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.Latencies = &Latencies{} })
			must(0, l.do(r, l.at))(t)

			r = newRig(t, func(c *Config) { c.Latencies = &Latencies{} })
			l.refuses(t, l.do(r, l.beyond))
		})
	}
}

func (l limit) refuses(t *testing.T, err error) {
	t.Helper()

	var e *refusal
	if !errors.As(err, &e) {
		wantError(t, err, l.status, l.code, l.part)

		return
	}

	if e.status != l.status || e.ErrorCode != l.code || !strings.Contains(e.Message, l.part) {
		t.Errorf("got %v, want %d %s …%s…", e, l.status, l.code, l.part)
	}
}
