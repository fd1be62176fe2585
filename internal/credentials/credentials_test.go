package credentials

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// follower watches a file and notes what it tries and tells.
type follower struct {
	t    *testing.T
	path string

	mu    sync.Mutex
	tried []string
	told  []string
	// refuse is why the next tries fail.
	refuse error
}

func (f *follower) run(current string) (stop func()) {
	w := &Watch[string]{
		Read: func() (string, error) {
			b, err := os.ReadFile(f.path)
			if err == nil && len(b) == 0 {
				err = errors.New("it is empty")
			}

			return string(b), err
		},
		Try: func(_ context.Context, s string) error {
			f.mu.Lock()
			defer f.mu.Unlock()

			f.tried = append(f.tried, s)

			return f.refuse
		},
		Told: func(err error) {
			text := "well"
			if err != nil {
				text = err.Error()
			}

			f.mu.Lock()
			defer f.mu.Unlock()

			f.told = append(f.told, text)
		},
	}

	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})

	go func() {
		defer close(done)

		w.Run(ctx, current)
	}()

	return func() {
		cancel()
		<-done
	}
}

// put swaps the file as Kubernetes does: a directory behind a symbolic link, which
// is replaced as a whole.
func (f *follower) put(version, content string) {
	f.t.Helper()

	dir := filepath.Dir(f.path)
	data := filepath.Join(dir, version)

	for _, err := range []error{
		os.MkdirAll(data, 0o700), os.WriteFile(filepath.Join(data, "key"), []byte(content), 0o600),
		os.Symlink(data, filepath.Join(dir, "next")), os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "data")),
	} {
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

func follow(t *testing.T, test func(f *follower)) {
	t.Helper()
	t.Parallel()

	dir := t.TempDir()

	synctest.Test(t, func(t *testing.T) {
		f := &follower{t: t, path: filepath.Join(dir, "key")}
		f.put("1", "one")

		if err := os.Symlink(filepath.Join(dir, "data", "key"), f.path); err != nil {
			t.Fatal(err)
		}

		stop := f.run("one")
		defer stop()

		test(f)
	})
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (f *follower) want(tried, told []string) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()

	if !slices.Equal(f.tried, tried) || !slices.Equal(f.told, told) {
		f.t.Errorf("tried %q and told %q, want %q and %q", f.tried, f.told, tried, told)
	}
}

// saw is how many tries there were, and what was told last.
func (f *follower) saw() (tries int, last string) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if n := len(f.told); n > 0 {
		last = f.told[n-1]
	}

	return len(f.tried), last
}

func (f *follower) refuses(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.refuse = err
}

// A secret that is swapped by its link is taken within seconds, once.
func TestASecretThatIsSwappedIsTaken(t *testing.T) {
	follow(t, func(f *follower) {
		pass(time.Hour)
		f.want(nil, nil)
		f.put("2", "two")
		pass(3 * Every)
		f.want([]string{"two"}, []string{"well"})
		pass(time.Hour)
		f.want([]string{"two"}, []string{"well"})
	})
}

// A file that is being written, that is empty or away for a moment, is nothing new.
func TestAFileThatIsBeingWrittenIsLeftAlone(t *testing.T) {
	follow(t, func(f *follower) {
		for i := range 5 {
			f.put("w"+strings.Repeat("x", i), "half"+strings.Repeat("x", i))
			pass(Every)
		}

		f.put("2", "")
		pass(Every)
		f.put("3", "one")
		pass(time.Minute)
		f.want(nil, nil)
	})
}

// What is empty for good is told, and changes nothing; so is one that is refused,
// which is tried again ever more slowly until it is good.
func TestWhatIsRefusedIsToldAndTriedSlowly(t *testing.T) {
	follow(t, func(f *follower) {
		f.put("2", "")
		pass(3 * Every)

		if tries, last := f.saw(); tries > 0 || last != "it is empty" {
			t.Errorf("%d tries, told %q", tries, last)
		}

		f.put("3", "one")
		pass(3 * Every)

		if tries, last := f.saw(); tries > 0 || last != "well" {
			t.Errorf("%d tries, told %q", tries, last)
		}

		f.refuses(errors.New("refused"))
		f.put("4", "two")
		pass(time.Hour)

		if tries, last := f.saw(); tries < 55 || tries > 70 || last != "refused" {
			t.Errorf("tried %d times in an hour, told %q", tries, last)
		}

		f.refuses(nil)
		pass(slowest + Every)

		if _, last := f.saw(); last != "well" {
			t.Errorf("told %q", last)
		}
	})
}

func TestExpiryIsWarnedOfAMonthAndAWeekAhead(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

	for _, c := range []struct {
		left      time.Duration
		key, text string
	}{
		{Early + time.Second, "", ""},
		{Early, "early", "the key expires in 30 days, on 2026-03-31 12:00 UTC: renew it"},
		{Late + time.Second, "early", "the key expires in 7 days, on 2026-03-08 12:00 UTC: renew it"},
		{Late, "late", "the key expires in 7 days, on 2026-03-08 12:00 UTC: renew it"},
		{5 * time.Hour, "late", "the key expires in 5 hours, on 2026-03-01 17:00 UTC: renew it"},
		{time.Minute, "late", "the key expires in less than two hours, on 2026-03-01 12:01 UTC: renew it"},
		{0, "expired", "the key has expired on 2026-03-01 12:00 UTC: renew it"},
	} {
		if key, text := Warning("the key", now.Add(c.left), now, "renew it"); key != c.key || text != c.text {
			t.Errorf("%s before: %q, %q", c.left, key, text)
		}
	}

	if key, _ := Warning("the key", time.Time{}, now, ""); key != "" {
		t.Errorf("a key for ever: %q", key)
	}
}
