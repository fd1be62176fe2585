package main

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/factory"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// replica is one of several daemons with one provider ID, with its own ways to
// Omni and the rack.
type replica struct {
	*daemon

	omni, rack *relay
}

func (p *place) replica(env map[string]string) *replica {
	p.t.Helper()

	r := &replica{omni: newRelay(p.t, hostOf(p.t, p.Omni.Endpoint())), rack: newRelay(p.t, hostOf(p.t, p.RackURL))}

	own := map[string]string{}
	for k, v := range env {
		own[k] = v
	}

	own["OMNI_ENDPOINT"], own["OXIDE_HOST"] = "grpc://"+r.omni.address, "http://"+r.rack.address
	r.daemon = start(p.t, own)

	return r
}

func hostOf(t *testing.T, endpoint string) string {
	t.Helper()

	u, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}

	return u.Host
}

// role is what /healthz says that the daemon is.
func (d *daemon) role() string {
	client := http.Client{Timeout: 2 * time.Second}

	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, "http://"+d.health+"/healthz", nil)
	if err != nil {
		d.t.Fatal(err)
	}

	resp, err := client.Do(req)
	if err != nil {
		return err.Error()
	}

	defer resp.Body.Close()

	var body bytes.Buffer

	_, _ = body.ReadFrom(resp.Body)

	return strings.TrimSpace(body.String())
}

func (d *daemon) holds() bool { return strings.Contains(d.role(), "holder of the lease") }

func (d *daemon) standsBy() bool {
	ready, _ := d.ready()

	return ready && strings.Contains(d.role(), "standby")
}

// pair starts two replicas: the first holds the lease, the second stands by and
// is ready.
func (p *place) pair(env map[string]string) (holder, standby *replica) {
	p.t.Helper()

	if env["LEASE_DURATION"] != "5m" {
		env["LEASE_DURATION"], env["LEASE_RENEW_EVERY"], env["LEASE_STOP_AFTER"] = "3s", "500ms", "2s"
	}

	holder = p.replica(env)
	p.eventually("the first to hold the lease", holder.holds)
	standby = p.replica(env)
	p.eventually("the second to stand by, ready", standby.standsBy)

	return holder, standby
}

// uploading waits until an upload is under way.
func (p *place) uploading() {
	p.t.Helper()
	p.eventually("an upload to be under way", func() bool { return p.Rack.CallCount("disk_bulk_write_import") > 3 })
}

// takeover waits until the replica works, and prints how long that took.
func (p *place) takeover(r *replica, after string, since time.Time) {
	p.t.Helper()
	p.eventually("the other one to take over", func() bool {
		p.oneEach()

		return r.holds()
	})
	p.t.Logf("taken over %s after the holder %s", time.Since(since).Round(10*time.Millisecond), after)
}

// oneEach: at every moment each request has at most one instance.
func (p *place) oneEach() {
	p.t.Helper()

	seen := map[string]string{}

	for _, i := range p.inventory().Instances {
		mark, ok := naming.Parse(i.Description)
		if !ok || seen[mark.Key] != "" {
			p.t.Fatalf("instance %s (%q) is not the only one of its request: %s", i.Id, i.Description, seen[mark.Key])
		}

		seen[mark.Key] = i.Id
	}
}

// settled waits for n machines, one image and nothing else, and then has all of
// it removed.
func (p *place) settled(n int) {
	p.t.Helper()

	p.eventually("the machines alone to be there", func() bool {
		p.oneEach()

		left := p.inventory()

		return p.joined("workers") == n && len(left.Instances) == n && len(left.Disks) == n && len(left.Snapshots) == 0 && left.Images() == 1
	})

	p.set("workers", "oxide", 0)
	p.waitNothingLeft()
}

func slowFactory() site.Config { return site.Config{Factory: factory.Config{Rate: 4 << 20}} }

// Rule B61, two replicas with one provider ID and one killed in the middle of an
// upload: as many instances as requests, one image, no clean-up of what is in
// use, takeover inside the time that the lease says.
func TestB61TwoReplicasAndOneIsKilledInMidUpload(t *testing.T) {
	t.Parallel()

	p := newPlace(t, slowFactory())
	holder, standby := p.pair(p.env("oxide"))
	p.set("workers", "oxide", 5)
	p.uploading()

	killed := time.Now()

	holder.kill()
	p.takeover(standby, "was killed, with a lease of 3 s", killed)
	p.settled(5)

	if got := standby.entries("warn", "error"); len(got) != 0 {
		t.Errorf("the standby warns of %q", got)
	}
}

// A replica that is stopped for longer than the lease and then goes on finds
// that another one works: it makes nothing and removes nothing.
func TestAReplicaThatWasPausedStandsBy(t *testing.T) {
	t.Parallel()

	p := newPlace(t, slowFactory())
	holder, standby := p.pair(p.env("oxide"))
	p.set("workers", "oxide", 3)
	p.uploading()

	paused := time.Now()

	if err := holder.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	p.takeover(standby, "was paused, with a lease of 3 s", paused)

	if err := holder.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}

	p.eventually("the first to stand by", holder.standsBy)
	p.waitJoined("workers", 3)
	p.settled(3)

	if !standby.holds() || strings.Count(holder.log(), "lost the lease") != 1 {
		t.Errorf("the second is %q, the first said:\n%s", standby.role(), holder.log())
	}

	if code := holder.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A replica that is cut off from Omni stops; when it is back it stands by.
func TestAReplicaThatIsCutOffFromOmniStandsBy(t *testing.T) {
	t.Parallel()

	p := newPlace(t, slowFactory())
	holder, standby := p.pair(p.env("oxide"))
	p.set("workers", "oxide", 3)
	p.uploading()

	cut := time.Now()

	holder.omni.cut()
	p.takeover(standby, "was cut off from Omni, with a lease of 3 s", cut)

	if holder.holds() {
		t.Error("two replicas work")
	}

	p.waitJoined("workers", 3)
	p.eventually("the first to say why it is not ready", func() bool {
		ready, why := holder.ready()

		return !ready && strings.Contains(why, "omni: ")
	})
	holder.omni.heal()
	p.eventually("the first to stand by", holder.standsBy)
	p.settled(3)
}

// Losing the rack does not give up the lease: another replica would most likely
// find it away too.
func TestAReplicaThatIsCutOffFromTheRackKeepsTheLease(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{})
	env := p.env("oxide")
	holder, standby := p.pair(env)
	p.set("workers", "oxide", 1)
	p.waitJoined("workers", 1)

	holder.rack.cut()
	p.set("workers", "oxide", 3)
	p.eventually("the holder not to be ready", func() bool {
		ready, why := holder.ready()

		return !ready && strings.Contains(why, "rack: ")
	})

	if !holder.holds() || standby.holds() {
		t.Errorf("the first is %q, the second %q", holder.role(), standby.role())
	}

	holder.rack.heal()
	p.settled(3)

	if strings.Contains(standby.log(), "holding the lease") {
		t.Error("the standby has worked meanwhile")
	}
}

// A rolling update: the new one starts, is ready as a standby, the old one gets
// SIGTERM, and the new one goes on.
func TestARollingUpdateHandsTheLeaseOver(t *testing.T) {
	t.Parallel()

	p := newPlace(t, slowFactory())
	env := p.env("oxide")
	// Handing over does not wait for the lease to run out.
	env["LEASE_DURATION"] = "5m"

	holder, standby := p.pair(env)
	p.set("workers", "oxide", 3)
	p.uploading()

	ended := time.Now()

	if code := holder.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	p.takeover(standby, "had ended on SIGTERM, with a lease of 5 min", ended)
	p.settled(3)

	if !strings.Contains(holder.log(), "freed the lease") {
		t.Errorf("the first did not free the lease:\n%s", holder.log())
	}
}
