package lease

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	testNamespace = "infra-provider:oxide-test"
	testType      = "Lease.oxide-test.infraprovider.sidero.dev"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// defaults are the times of the tests, which are fake.
var defaults = Times{Duration: DefaultDuration, Renew: DefaultRenew, Stop: DefaultStop}

// omni is what all processes of a test share.
type omni struct {
	t     *testing.T
	state state.CoreState

	mu sync.Mutex
	// used is what Unused looks at.
	used  bool
	procs []*process
}

// bubble runs a test in fake time and ends its processes.
func bubble(t *testing.T, test func(t *testing.T, o *omni)) {
	t.Helper()
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		o := &omni{t: t, state: state.WrapCore(namespaced.NewState(inmem.Build))}

		// Invariant: at most one process may begin a call.
		watch := make(chan struct{})
		watching := make(chan struct{})

		go func() {
			defer close(watching)

			for {
				select {
				case <-watch:
					return
				case <-time.After(100 * time.Millisecond):
					o.atMostOne()
				}
			}
		}()

		test(t, o)

		for _, p := range o.all() {
			p.end()
		}

		close(watch)
		<-watching
	})
}

func (o *omni) all() []*process {
	o.mu.Lock()
	defer o.mu.Unlock()

	return slices.Clone(o.procs)
}

func (o *omni) atMostOne() {
	o.t.Helper()

	var may []string

	for _, p := range o.all() {
		if p.Check() == nil {
			may = append(may, p.cfg.Host)
		}
	}

	if len(may) > 1 {
		o.t.Errorf("%q work at the same time", may)
	}
}

// process is one process with its own way to Omni.
type process struct {
	*Keeper
	*link

	t      *testing.T
	logs   *observer.ObservedLogs
	cancel context.CancelFunc
	done   chan struct{}
	err    error

	mu      sync.Mutex
	tenures int
	working bool
	deposed int
	told    []error
	// lasts is how long the work goes on after its context has ended.
	lasts time.Duration
	// fails ends the work.
	fails chan error
}

func (o *omni) start(host string, change ...func(*Config)) *process {
	o.t.Helper()

	core, logs := observer.New(zapcore.InfoLevel)
	p := &process{t: o.t, link: &link{Store: o.state}, logs: logs, done: make(chan struct{}), fails: make(chan error, 1)}

	cfg := Config{
		Store: p.link, Type: testType, Namespace: testNamespace, Host: host, Times: defaults,
		Unused: func(context.Context) (bool, error) { return !o.wasUsed(), nil },
		Told:   p.hear,
		Mend: func(err error) bool {
			return status.Code(err) == codes.Unauthenticated || state.IsOwnerConflictError(err)
		},
		Deposed: p.depose,
		Log:     zap.New(core),
	}
	for _, c := range change {
		c(&cfg)
	}

	p.Keeper = New(cfg)

	ctx, cancel := context.WithCancel(context.WithoutCancel(o.t.Context()))
	p.cancel = cancel

	o.mu.Lock()
	o.procs = append(o.procs, p)
	o.mu.Unlock()

	go func() {
		defer close(p.done)

		p.err = p.Run(ctx, func(ctx context.Context) error { return p.work(ctx, o) })
	}()

	return p
}

func (o *omni) wasUsed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()

	return o.used
}

func (p *process) work(ctx context.Context, o *omni) error {
	o.mu.Lock()
	o.used = true
	o.mu.Unlock()

	p.mu.Lock()
	p.tenures++
	p.working = true
	p.mu.Unlock()

	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()

		p.working = false
	}()

	select {
	case <-ctx.Done():
		p.mu.Lock()
		lasts := p.lasts
		p.mu.Unlock()

		time.Sleep(lasts)

		return nil
	case err := <-p.fails:
		return err
	}
}

func (p *process) hear(_ Role, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.told = append(p.told, err)
}

// outlast has the work go on for the time after its context has ended.
func (p *process) outlast(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.lasts = d
}

func (p *process) depose() {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.deposed++
}

// end ends the process as SIGTERM does.
func (p *process) end() {
	p.cancel()
	<-p.done
}

// look answers how often the process held the lease, whether its work goes on,
// how often it was deposed, and the last error it was told.
func (p *process) look() (tenures int, working bool, deposed int, told error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if len(p.told) > 0 {
		told = p.told[len(p.told)-1]
	}

	return p.tenures, p.working, p.deposed, told
}

func (p *process) want(tenures int, working bool) {
	p.t.Helper()
	synctest.Wait()

	n, w, _, _ := p.look()
	if n != tenures || w != working || (p.Check() == nil) != working || p.Role().Holding != working {
		p.t.Errorf("%s has held the lease %d times, want %d; works %v, may work %v, is called %q, want %v",
			p.cfg.Host, n, tenures, w, p.Check() == nil, p.Role(), working)
	}
}

// says are the lines of the log.
func (p *process) says() []string {
	var out []string
	for _, e := range p.logs.All() {
		out = append(out, e.Message)
	}

	return out
}

// within fails unless the condition comes true in the time, and answers when.
func within(t *testing.T, d time.Duration, what string, holds func() bool) time.Duration {
	t.Helper()

	began := time.Now()

	for !holds() {
		if time.Since(began) > d {
			t.Fatalf("waited %s for %s", d, what)
		}

		time.Sleep(10 * time.Millisecond)
	}

	return time.Since(began)
}

func (p *process) holds() bool { return p.Check() == nil }

// link is a process's way to Omni, with its faults.
type link struct {
	Store

	mu    sync.Mutex
	cut   bool  // nothing comes through, and no answer either
	err   error // of each call
	calls int
	// before is called before each write goes out, after once it has arrived; an
	// error of after is the answer.
	before func()
	after  func() error
}

func (l *link) set(f func(l *link)) {
	l.mu.Lock()
	defer l.mu.Unlock()

	f(l)
}

func (l *link) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.calls
}

func (l *link) pass(ctx context.Context) error {
	l.mu.Lock()
	l.calls++
	cut, err := l.cut, l.err
	l.mu.Unlock()

	if cut {
		<-ctx.Done()

		return status.FromContextError(ctx.Err()).Err()
	}

	return err
}

func (l *link) write(ctx context.Context, f func() error) error {
	if err := l.pass(ctx); err != nil {
		return err
	}

	l.mu.Lock()
	before, after := l.before, l.after
	l.mu.Unlock()

	if before != nil {
		before()
	}

	if err := f(); err != nil || after == nil {
		return err
	}

	return after()
}

// Get implements Store.
func (l *link) Get(ctx context.Context, ptr resource.Pointer, opts ...state.GetOption) (resource.Resource, error) { //nolint:ireturn // as Store wants
	if err := l.pass(ctx); err != nil {
		return nil, err
	}

	return l.Store.Get(ctx, ptr, opts...)
}

// Create implements Store. What was sent arrives although the sender has gone.
func (l *link) Create(ctx context.Context, res resource.Resource, opts ...state.CreateOption) error {
	return l.write(ctx, func() error { return l.Store.Create(context.WithoutCancel(ctx), res, opts...) })
}

// Update implements Store.
func (l *link) Update(ctx context.Context, res resource.Resource, opts ...state.UpdateOption) error {
	return l.write(ctx, func() error { return l.Store.Update(context.WithoutCancel(ctx), res, opts...) })
}

// record reads the record past all links.
func (o *omni) record() *Resource {
	o.t.Helper()

	res, err := o.state.Get(o.t.Context(), pointer())
	if err != nil {
		o.t.Fatal(err)
	}

	r, ok := res.(*Resource)
	if !ok {
		o.t.Fatalf("the record is a %T", res)
	}

	return r
}

// change writes the record by hand.
func (o *omni) change(f func(r *Resource)) {
	o.t.Helper()

	r := o.record()
	f(r)

	if err := o.state.Update(o.t.Context(), r, state.WithExpectedPhaseAny()); err != nil {
		o.t.Fatal(err)
	}
}

func (o *omni) remove() {
	o.t.Helper()

	if err := o.state.Destroy(o.t.Context(), pointer()); err != nil {
		o.t.Fatal(err)
	}
}

func pointer() resource.Metadata {
	return resource.NewMetadata(testNamespace, testType, recordID, resource.VersionUndefined)
}
