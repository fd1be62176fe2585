package rack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/conform"
)

// APIVersion is the one version of the API that is served.
const APIVersion = "2026060800.0.0"

// Server is a simulated rack: all its state, and the HTTP API over it.
type Server struct {
	cfg Config
	log *zap.Logger
	mux *http.ServeMux

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	clock Clock
	// sleep is the clock's.
	sleep func(ctx context.Context, d time.Duration) bool

	// moved, if not nil, is told each step of a disk, snapshot or instance from
	// one state to another, with mu held.
	moved func(kind, from, to string)

	calls   *callLog
	faults  *faultSet
	checker *conform.Checker // nil without an API document

	// mu guards all below. It is never held while time passes: see saga.
	mu     sync.Mutex
	closed bool

	siloID  string
	started time.Time
	tokens  map[string]*Token
	users   map[string]*user
	// siloGroups are by name, as users are by display name.
	siloGroups map[string]*siloGroup

	projects  *table[*project]
	vpcs      *table[*vpc]
	subnets   *table[*subnet]
	routers   *table[*router]
	vpcRoutes *table[*vpcRoute]
	gateways  *table[*gateway]
	nics      *table[*nic]
	groups    *table[*group]
	pools     *table[*pool]
	floating  *table[*floatingIP]
	keys      *table[*sshKey]
	disks     *table[*disk]
	snapshots *table[*snapshot]
	images    *table[*image]
	instances *table[*instance]

	sleds       []*sled
	provisioned Quota
	physical    int64 // bytes taken by distributed disks and snapshots, all copies
	bulkBytes   int64
}

// New makes a rack. Close it to end its goroutines.
func New(cfg Config) (*Server, error) {
	cfg.setDefaults()

	checker, err := conform.New(cfg.Logger)
	if err != nil {
		return nil, fmt.Errorf("setting up the simulated rack: %w", err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		cfg: cfg, log: cfg.Logger, ctx: ctx, cancel: cancel, clock: cfg.Clock, sleep: cfg.Clock.Sleep,
		calls: newCallLog(cfg.Clock), faults: newFaultSet(), checker: checker,
		siloID: uuid.NewString(), started: cfg.Clock.Now().UTC(),
		tokens: map[string]*Token{}, users: map[string]*user{}, siloGroups: map[string]*siloGroup{},
		projects: newTable[*project](kindProject), vpcs: newTable[*vpc](kindVPC),
		routers: newTable[*router](kindRouter), vpcRoutes: newTable[*vpcRoute](kindRoute),
		gateways: newTable[*gateway](kindGateway), nics: newTable[*nic](kindNIC),
		subnets: newTable[*subnet](kindSubnet), groups: newTable[*group](kindGroup),
		pools: newTable[*pool](kindPool), floating: newTable[*floatingIP](kindFloating), keys: newTable[*sshKey](kindSSHKey),
		disks: newTable[*disk](kindDisk), snapshots: newTable[*snapshot](kindSnapshot),
		images: newTable[*image](kindImage), instances: newTable[*instance](kindInstance),
	}

	if err := s.setUp(); err != nil {
		cancel()

		return nil, fmt.Errorf("setting up the simulated rack: %w", err)
	}

	s.mux = s.routes()

	return s, nil
}

func (s *Server) setUp() error {
	if err := s.cfg.Content.check(); err != nil {
		return err
	}

	if len(s.cfg.Pantries) == 0 {
		return errors.New("a rack without import servers can take no images")
	}

	for _, t := range s.cfg.Tokens {
		for _, r := range t.ProjectRoles {
			if err := r.check(); err != nil {
				return err
			}
		}

		if err := t.SiloRole.check(); err != nil {
			return err
		}

		s.SetToken(t)
	}

	for _, sl := range s.cfg.Sleds {
		s.sleds = append(s.sleds, &sled{Sled: sl})
	}

	for _, p := range s.cfg.Pools {
		if err := s.addPool(p); err != nil {
			return err
		}
	}

	for _, name := range s.cfg.Projects {
		if err := checkName(name); err != nil {
			return fmt.Errorf("project %q: %w", name, err)
		}

		if _, err := s.addProject(name, "made at start"); err != nil {
			return err
		}
	}

	for _, f := range s.cfg.Faults {
		if _, err := s.AddFault(f); err != nil {
			return err
		}
	}

	return nil
}

// ServeHTTP makes the rack an http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mux.ServeHTTP(w, withoutEmptySegments(r))
}

// withoutEmptySegments has a path be what it is without them: the rack's router
// passes over doubled slashes and one at the end, and redirects nobody.
func withoutEmptySegments(r *http.Request) *http.Request {
	path := r.URL.EscapedPath()
	if !strings.Contains(path, "//") && (!strings.HasSuffix(path, "/") || path == "/") {
		return r
	}

	segments := slices.DeleteFunc(strings.Split(path, "/"), func(s string) bool { return s == "" })
	raw := "/" + strings.Join(segments, "/")

	plain, err := url.PathUnescape(raw)
	if err != nil {
		return r
	}

	clean := *r
	clean.URL = new(url.URL)
	*clean.URL = *r.URL
	clean.URL.Path, clean.URL.RawPath = plain, raw

	return &clean
}

// Close ends guests and waits for all that goes on. Calls that wait for their
// saga end early.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()

	s.cancel()
	s.wg.Wait()
	s.checker.Close()
}

// Violations are exchanges that do not fit the API's document; there are none
// without one.
func (s *Server) Violations() []conform.Violation { return s.checker.Violations() }

// spawn runs f in a goroutine that Close waits for. Held: s.mu.
func (s *Server) spawn(f func()) {
	if s.closed {
		return
	}

	s.wg.Go(f)
}

// pause lets a scaled delay pass; false when the rack is being closed.
func (s *Server) pause(d time.Duration) bool {
	d = time.Duration(float64(d) * s.cfg.TimeScale)
	if d <= 0 {
		return s.ctx.Err() == nil
	}

	return s.sleep(s.ctx, d)
}

// saga lets a saga's time pass with the lock released. The caller holds s.mu
// and must expect that anything but its own objects has changed afterwards.
func (s *Server) saga(d time.Duration) {
	s.mu.Unlock()
	s.pause(d)
	s.mu.Lock()
}

// later runs f with the lock held after a scaled delay, unless the rack is
// closed before. Held: s.mu.
func (s *Server) later(d time.Duration, f func()) {
	s.spawn(func() {
		if !s.pause(d) {
			return
		}

		s.mu.Lock()
		defer s.mu.Unlock()

		f()
	})
}
