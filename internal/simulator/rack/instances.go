package rack

import (
	"slices"
	"time"
)

const (
	maxCPUs         = 254
	maxMemory       = 1536 * gib
	maxDisks        = 12
	maxNICs         = 8
	maxExternalIPs  = 32
	maxEphemeral    = 2
	maxUserData     = 32 << 10
	maxInstanceKeys = 100
	maxGroups       = 16
	maxGroupMembers = 32
)

type runState string

const (
	stateCreating  runState = "creating"
	stateStarting  runState = "starting"
	stateRunning   runState = "running"
	stateStopping  runState = "stopping"
	stateStopped   runState = "stopped"
	stateRebooting runState = "rebooting"
	stateMigrating runState = "migrating"
	stateFailed    runState = "failed"
)

// intent is what the rack believes an instance should be; only an instance
// that should run is started again by itself.
type intent string

const (
	intentRunning       intent = "running"
	intentStopped       intent = "stopped"
	intentGuestShutdown intent = "guest_shutdown"
	intentDestroyed     intent = "destroyed"
)

type instance struct {
	meta
	ncpus    int
	memory   int64
	hostname string
	userData []byte
	keys     []*sshKey
	policy   string // never, best_effort, or empty
	platform string
	jumbo    bool
	bootDisk string  // ID
	disks    []*disk // in order of their slots
	nics     []*nic
	ips      []*externalIP
	floating []*floatingIP
	groups   []*group

	state       runState
	stateTime   time.Time
	intent      intent
	lastRestart time.Time
	natLost     bool  // a refused delete has taken its NAT entries
	sled        *sled // holds a reservation while there is a VM
	migration   *migration
	gen         int // moves with the state: a timer of an older state is void
	vm          *vm
}

func (i *instance) become(st runState) {
	i.moves(kindInstance, string(i.state), string(st))
	i.state = st
	i.stateTime = i.now()
	i.gen++
}

func (i *instance) touch() { i.modified = i.now() }

type instanceView struct {
	identity
	ProjectID           string     `json:"project_id"`
	Hostname            string     `json:"hostname"`
	NCPUs               int        `json:"ncpus"`
	Memory              int64      `json:"memory"`
	BootDiskID          *string    `json:"boot_disk_id"`
	RunState            runState   `json:"run_state"`
	TimeRunStateUpdated time.Time  `json:"time_run_state_updated"`
	CPUPlatform         *string    `json:"cpu_platform"`
	EnableJumboFrames   bool       `json:"enable_jumbo_frames"`
	AutoRestartEnabled  bool       `json:"auto_restart_enabled"`
	AutoRestartPolicy   *string    `json:"auto_restart_policy"`
	CooldownExpiration  *time.Time `json:"auto_restart_cooldown_expiration"`
	TimeLastRestarted   *time.Time `json:"time_last_auto_restarted"`
}

func (s *Server) viewInstance(i *instance) any {
	v := instanceView{
		identity: i.identity(), ProjectID: i.scope, Hostname: i.hostname, NCPUs: i.ncpus, Memory: i.memory,
		BootDiskID: orNull(i.bootDisk), RunState: i.state, TimeRunStateUpdated: i.stateTime,
		CPUPlatform: orNull(i.platform), AutoRestartPolicy: orNull(i.policy),
		AutoRestartEnabled: i.policy != "never", EnableJumboFrames: i.jumbo,
	}

	if !i.lastRestart.IsZero() {
		last := i.lastRestart
		until := last.Add(time.Duration(float64(s.cfg.Latencies.RestartCooldown) * s.cfg.TimeScale))
		v.TimeLastRestarted, v.CooldownExpiration = &last, &until
	}

	return v
}

func (s *Server) findInstance(c *call, need Role) (*instance, error) {
	return resolve(c, s.instances, c.path("instance"), need)
}

func (s *Server) instanceView(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	i, err := s.findInstance(c, RoleViewer)
	if err != nil {
		return answer{}, err
	}

	return ok(s.viewInstance(i)), nil
}

func (s *Server) instanceList(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	pg, p, err := c.pageProject()
	if err != nil {
		return answer{}, err
	}

	return listIn(pg, s.instances, p.id, s.viewInstance)
}

// listOf answers a list of what belongs to the instance of the path.
func listOf[T entity](s *Server, c *call, of func(*instance) []T, view func(T) any) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	pg, err := c.pageWith("project")
	if err != nil {
		return answer{}, err
	}

	i, err := s.findInstance(c, RoleViewer)
	if err != nil {
		return answer{}, err
	}

	return list(pg, append([]T(nil), of(i)...), view)
}

func (s *Server) instanceDiskList(c *call) (answer, error) {
	return listOf(s, c, func(i *instance) []*disk { return i.disks }, viewDisk)
}

func (s *Server) instanceKeyList(c *call) (answer, error) {
	return listOf(s, c, func(i *instance) []*sshKey { return i.keys }, viewSSHKey)
}

func (s *Server) instanceGroupList(c *call) (answer, error) {
	return listOf(s, c, func(i *instance) []*group { return i.groups }, viewGroup)
}

// none is a list of what an instance can not have here: multicast is off, and
// there are no external subnets.
func (s *Server) none(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if _, err := s.findInstance(c, RoleViewer); err != nil {
		return answer{}, err
	}

	return ok(resultsPage{Items: []any{}}), nil
}

func (s *Server) instanceMulticast(c *call) (answer, error) {
	if _, err := c.pageByID("project"); err != nil {
		return answer{}, err
	}

	return s.none(c)
}

func (s *Server) instanceExternalSubnets(c *call) (answer, error) { return s.none(c) }

// instanceDelete takes away a stopped or failed instance and keeps its disks.
// On any other it is refused, but not without harm: the rack has by then noted
// that the instance should not exist and has removed its NAT entries.
func (s *Server) instanceDelete(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	i, err := s.findInstance(c, RoleLimitedCollaborator)
	if err != nil {
		return answer{}, err
	}

	if i.state != stateStopped && i.state != stateFailed {
		i.intent = intentDestroyed
		i.natLost = true

		return answer{}, invalidRequest("cannot delete instance: instance is running or has not yet fully stopped")
	}

	for _, d := range slices.Clone(i.disks) {
		s.detachDisk(d)
	}

	s.dropInstance(i)
	i.become(stateStopped) // voids an automatic restart that was due
	s.saga(s.cfg.Latencies.InstanceDelete)

	return noContent(), nil
}

// dropInstance takes the record away with its NICs, addresses and memberships.
// Held: s.mu.
func (s *Server) dropInstance(i *instance) {
	s.instances.remove(i)

	for _, n := range i.nics {
		s.dropNIC(n)
	}

	for _, ip := range i.ips {
		ip.free()
	}

	for _, f := range slices.Clone(i.floating) {
		f.detach()
	}

	for _, g := range i.groups {
		delete(g.members, i.id)
	}

	i.nics, i.ips, i.groups = nil, nil, nil
}
