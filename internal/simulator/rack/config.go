package rack

import (
	"slices"
	"time"

	"go.uber.org/zap"
)

const gib = int64(1) << 30

// Config describes the simulated rack. The zero value is one silo with project
// "demo", token DefaultToken, four sleds and one default IPv4 pool.
type Config struct {
	// Silo is the silo's name.
	Silo string
	// Tokens are those the rack accepts; none means DefaultToken with the
	// collaborator role on the silo.
	Tokens []Token
	// Projects exist at start, each with its default VPC and subnet.
	Projects []string
	// Quota of the silo; zero fields have no limit worth speaking of.
	Quota Quota
	// Sleds are where instances run.
	Sleds []Sled
	// RackStorage is the physical space for distributed disks, in bytes; each
	// disk and snapshot takes three times its size.
	RackStorage int64
	// Pools are the address pools linked to the silo. Nil means one default
	// IPv4 pool; an empty list that is not nil means none.
	Pools []Pool
	// Pantries are the names of the import servers: a disk is pinned to one of
	// them while it is imported to. Nil means DefaultPantries.
	Pantries []string
	// Latencies of the control plane and the sleds; nil means DefaultLatencies.
	Latencies *Latencies
	// Clock is the rack's time; nil is the system's.
	Clock Clock
	// TimeScale multiplies all delays: 1 (also 0) is real time, 0.1 ten times
	// as fast.
	TimeScale float64
	// Faults are there from the start.
	Faults []Fault
	// Booter runs the guests; nil leaves running instances without one.
	Booter Booter
	// Content says what becomes of uploaded bytes; empty is ContentKept.
	Content ContentMode
	// JumboFrames is the fleet's opt-in: without it no instance may have them.
	JumboFrames bool
	// SwapGuestUUID hands guests their instance ID with the first three groups
	// byte-swapped, as some releases of the hypervisor did.
	SwapGuestUUID bool
	// BeforeCall and AfterCall are called around each call's work, outside all
	// locks: before anything is judged, and when the work is done but its
	// answer not yet written. A BeforeCall that panics with
	// http.ErrAbortHandler drops the call and its connection.
	BeforeCall, AfterCall func(seq int, operation string)
	// Logger may be nil.
	Logger *zap.Logger
}

// DefaultToken is the token of a rack that was given none.
const DefaultToken = "oxide-token-simulated" //nolint:gosec // not a secret: it opens a simulator

// Quota of a silo: CPUs and memory of running instances, storage of disks and
// snapshots, in bytes.
type Quota struct {
	CPUs            int64
	Memory, Storage int64
}

// Sled is a server of the rack.
type Sled struct {
	Name   string
	CPUs   int
	Memory int64 // bytes
	// Platform is amd_milan (the default), amd_turin or amd_turin_v2.
	Platform string
	// LocalStorage is the space for local disks, in bytes; 0 means 10 TiB.
	LocalStorage int64
}

// Pool is a set of external addresses.
type Pool struct {
	Name      string
	IPVersion string // v4 or v6
	Default   bool
	First     string // first address
	Size      int    // number of addresses
	// More are further ranges, after the first.
	More []PoolRange
}

// PoolRange is a run of addresses of a pool.
type PoolRange struct {
	First string
	Size  int
}

// Latencies are the delays of a rack with TimeScale 1. Calls block for their
// saga's; Start, Stop, Reboot and Fail pass after the call was answered.
type Latencies struct {
	ProjectCreate                  time.Duration
	NetworkCreate                  time.Duration // a VPC or a subnet
	DiskCreate, DiskDelete         time.Duration
	BulkWrite, Finalize            time.Duration
	SnapshotCreate, SnapshotDelete time.Duration
	ImageCreate, ImageDelete       time.Duration
	InstanceCreate, InstanceDelete time.Duration
	InstanceStart                  time.Duration // the start saga, within the call
	ExternalIP                     time.Duration // attach and detach of external addresses
	Start, Stop, Reboot            time.Duration // starting to running, stopping to stopped, rebooting to running
	Fail                           time.Duration // a lost VM: stopping to failed; a halted one: stopping to stopped
	Migrate                        time.Duration // migrating to running
	RestartCooldown                time.Duration // between two automatic restarts
}

// DefaultLatencies are those of an idle rack.
func DefaultLatencies() Latencies {
	return Latencies{
		ProjectCreate: 200 * time.Millisecond, NetworkCreate: 200 * time.Millisecond,
		DiskCreate: 300 * time.Millisecond, DiskDelete: 150 * time.Millisecond,
		Finalize:       500 * time.Millisecond,
		SnapshotCreate: 500 * time.Millisecond, SnapshotDelete: 150 * time.Millisecond,
		ImageCreate: 200 * time.Millisecond, ImageDelete: 100 * time.Millisecond,
		InstanceCreate: 500 * time.Millisecond, InstanceDelete: 200 * time.Millisecond,
		InstanceStart: 200 * time.Millisecond, ExternalIP: 100 * time.Millisecond,
		Start: 5 * time.Second, Stop: 3 * time.Second, Reboot: 5 * time.Second,
		Fail: time.Second, Migrate: 20 * time.Second, RestartCooldown: 5 * time.Minute,
	}
}

func (c *Config) setDefaults() {
	if c.Silo == "" {
		c.Silo = "default-silo"
	}

	if len(c.Tokens) == 0 {
		c.Tokens = []Token{{Value: DefaultToken}}
	}

	for i := range c.Tokens {
		c.Tokens[i].setDefaults()
	}

	if c.Projects == nil {
		c.Projects = []string{"demo"}
	}

	if c.Pools == nil {
		c.Pools = []Pool{{Name: "default", IPVersion: "v4", Default: true, First: "198.18.0.1", Size: 4000}}
	}

	if c.Pantries == nil {
		c.Pantries = DefaultPantries()
	}

	if c.Latencies == nil {
		l := DefaultLatencies()
		c.Latencies = &l
	}

	if c.TimeScale == 0 {
		c.TimeScale = 1
	}

	if c.Clock == nil {
		c.Clock = systemClock{}
	}

	if c.Content == "" {
		c.Content = ContentKept
	}

	c.setSizes()

	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
}

// DefaultSleds are n sleds of 128 threads and 1 TiB.
func DefaultSleds(n int) []Sled {
	out := make([]Sled, n)
	for i := range out {
		out[i] = Sled{Name: "BRM" + string(rune('A'+i%26)), CPUs: 128, Memory: 1 << 40}
	}

	return out
}

// setSizes makes the rack as large as it is by default.
func (c *Config) setSizes() {
	c.Sleds = slices.Clone(c.Sleds)
	if c.Sleds == nil {
		c.Sleds = DefaultSleds(4)
	}

	for i := range c.Sleds {
		if c.Sleds[i].LocalStorage == 0 {
			c.Sleds[i].LocalStorage = 10 << 40
		}
	}

	if c.RackStorage == 0 {
		c.RackStorage = 4096 << 40
	}

	if c.Quota.CPUs == 0 {
		c.Quota.CPUs = 1 << 20
	}

	if c.Quota.Memory == 0 {
		c.Quota.Memory = 1024 << 40
	}

	if c.Quota.Storage == 0 {
		c.Quota.Storage = 1024 << 40
	}
}

// DefaultPantries are the three import servers of a rack.
func DefaultPantries() []string { return []string{"pantry-1", "pantry-2", "pantry-3"} }
