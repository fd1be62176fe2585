package main

import (
	"context"
	"os/exec"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/provider"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// unusedImage: the image goes when nothing uses it any more, and just then
// somebody wants it again.
func unusedImage() scenario {
	return scenario{
		name:   "unused image",
		env:    map[string]string{"IMAGE_KEEP": "2s", "IMAGE_KEEP_NEWEST": "0", "IMAGE_PRUNE_SILO": "on"},
		before: func(r *crashRun) { r.beginWith(1) },
		run: func(r *crashRun) {
			r.set("workers", crashProvider, 0)
			r.until("the image to be removed", func() bool { return r.ours().Images() == 0 })
			r.set("workers", crashProvider, 1)
			r.rest([]int{1}, plain("workers", 1))
			r.until("one record of the use of images", func() bool {
				uses := must(safe.StateListAll[*provider.ImageUse](r.t.Context(), r.Omni.AdminState()))(r.t)

				return uses.Len() == 1
			})
		},
	}
}

// importBesideTheDaemon: a person imports a file while the daemon makes a machine,
// and the daemon may die.
func importBesideTheDaemon() scenario {
	return scenario{
		name:   "import beside the daemon",
		before: func(r *crashRun) { r.begin(); r.register() },
		run: func(r *crashRun) {
			schematic := r.schematic("customization:\n  extraKernelArgs: [second]\n")
			file := r.download(schematic, "raw.zst")
			hand := r.importFile(schematic, file)

			r.set("workers", crashProvider, 1)
			r.until("the import to end", hand.ended)

			if code := hand.wait(); code != 0 {
				r.t.Errorf("the import exits with %d: %s", code, hand.log())
			}

			r.rest([]int{2}, plain("workers", 1))
		},
	}
}

// importKilled: it is the import that dies. Another one is not blocked, and the
// daemon removes what the first has left.
func importKilled() scenario {
	return scenario{
		name:   "import killed",
		before: func(r *crashRun) { r.begin(); r.register(); r.calls.aim(nil) },
		run: func(r *crashRun) {
			schematic := r.schematic("customization:\n  extraKernelArgs: [second]\n")
			file := r.download(schematic, "raw.zst")
			hand := r.importFile(schematic, file)
			r.calls.aim(hand)

			<-hand.done
			r.calls.observe(false)

			if r.calls.struckDown() {
				r.restarted = true
				close(r.calls.again)

				hand = r.importFile(schematic, file)
				<-hand.done
			}

			if code := hand.wait(); code != 0 {
				r.t.Errorf("the import exits with %d: %s", code, hand.log())
			}

			r.rest([]int{1})
		},
	}
}

// importFile begins `images import`.
func (r *crashRun) importFile(schematic, file string) *daemon {
	r.t.Helper()

	return r.command("images", "import", file, "--talos", testTalos, "--schematic", schematic, "--project", site.Project, "--log-level", "warn")
}

// command begins one of the program's commands.
func (r *crashRun) command(args ...string) *daemon {
	r.t.Helper()

	d := &daemon{t: r.t, done: make(chan struct{})}
	d.cmd = exec.CommandContext(context.WithoutCancel(r.t.Context()), binary, args...)
	d.cmd.Env = []string{"HOME=" + r.t.TempDir()}

	for k, v := range r.env {
		d.cmd.Env = append(d.cmd.Env, k+"="+v)
	}

	d.cmd.Stdout, d.cmd.Stderr = d, d

	if err := d.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}

	// One that hangs ends by itself.
	limit := time.AfterFunc(restWithin, func() { _ = d.cmd.Process.Kill() })

	go func() {
		d.err = d.cmd.Wait()
		limit.Stop()
		close(d.done)
	}()

	r.t.Cleanup(func() {
		_ = d.cmd.Process.Kill()

		<-d.done

		if r.t.Failed() {
			r.t.Logf("the command %v said:\n%s", args, d.log())
		}
	})

	return d
}

func (d *daemon) ended() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}
