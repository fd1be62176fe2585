package watcher

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap"
)

const (
	// lines is how many findings of one round have a line of their own: a rack
	// that was switched off is not worth a thousand.
	lines = 20
	// named is how many machines of a kind health names.
	named = 3
)

// words are what is said of each kind: in health, and in the log with what to do.
var words = map[kind]struct{ brief, full string }{
	vanished: {"vanished from the rack", "the machine's instance has vanished from the rack: remove the machine in Omni, which makes another"},
	failed:   {"failed", "the machine's instance has failed: start it, or remove the machine in Omni"},
	stopped:  {"stopped", "the machine's instance is stopped: start it, or remove the machine in Omni"},
	unjoined: {"not joined Omni", "the machine was started long ago and has not joined Omni: look at its serial console, and whether its subnet reaches Omni"},
}

// tell logs what has changed since the last round, and keeps counts and health.
func (w *Watcher) tell(machines []Machine, now map[string]finding, seen view) {
	w.log(now)
	w.findings = now
	w.count(machines, seen)
	w.tellBlind(machines, seen)

	var parts []string

	for _, k := range kinds {
		if ids := w.of(k); len(ids) > 0 {
			parts = append(parts, words[k].brief+": "+some(ids))
		}
	}

	if len(parts) == 0 {
		w.cfg.Board.OK(SubjectMachines)
	} else {
		// One key: each change has its line already.
		w.cfg.Board.Note(SubjectMachines, "found", strings.Join(parts, "; "))
	}
}

func (w *Watcher) log(now map[string]finding) {
	said, more := 0, 0

	for _, id := range slices.Sorted(maps.Keys(now)) {
		f := now[id]

		switch {
		case w.findings[id].kind == f.kind:
		case said == lines:
			more++
		default:
			said++

			w.cfg.Logger.Warn(words[f.kind].full, fields(f.machine, f.kind)...)
		}
	}

	if more > 0 {
		w.cfg.Logger.Warn(fmt.Sprintf("%d more machines are not as they should be", more))
	}

	said = 0

	for _, id := range slices.Sorted(maps.Keys(w.findings)) {
		if f := w.findings[id]; now[id].kind == "" && said < lines {
			said++

			w.cfg.Logger.Info("no longer so", fields(f.machine, f.kind)...)
		}
	}
}

func fields(m Machine, k kind) []zap.Field {
	return []zap.Field{
		zap.String("found", string(k)), zap.String("omni.request.id", m.RequestID), zap.String("oxide.instance.id", m.InstanceID),
		zap.String("oxide.instance.name", m.InstanceName), zap.String("oxide.project.id", m.ProjectID),
	}
}

// tellBlind tells of projects that can not be read.
func (w *Watcher) tellBlind(machines []Machine, seen view) {
	if len(seen.blind) == 0 {
		w.cfg.Board.OK(SubjectProjects)

		return
	}

	name, hidden := map[string]string{}, map[string]int{}

	for _, m := range machines {
		name[m.ProjectID] = m.ProjectName
		hidden[m.ProjectID]++
	}

	ids := slices.Sorted(maps.Keys(seen.blind))
	id := ids[0]
	text := fmt.Sprintf("project %q with %d machines can not be read: it was deleted, or the daemon's token lost its role there: %s",
		name[id], hidden[id], seen.blind[id])

	if len(ids) > 1 {
		text += fmt.Sprintf(" (and %d more projects)", len(ids)-1)
	}

	w.cfg.Board.Note(SubjectProjects, strings.Join(ids, " "), text)
}

func (w *Watcher) of(k kind) []string {
	var ids []string

	for id, f := range w.findings {
		if f.kind == k {
			ids = append(ids, id)
		}
	}

	slices.Sort(ids)

	return ids
}

func (w *Watcher) count(machines []Machine, seen view) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.counts.Watched, w.counts.Unreadable = len(machines), len(seen.blind)
	w.counts.Vanished, w.counts.Failed = len(w.of(vanished)), len(w.of(failed))
	w.counts.Stopped, w.counts.Unjoined = len(w.of(stopped)), len(w.of(unjoined))
	w.counts.States = map[string]int{}

	for _, i := range seen.instances {
		if w.cfg.Mine != nil && w.cfg.Mine(i.Description) {
			w.counts.States[string(i.RunState)]++
		}
	}
}

// some names the first of many.
func some(ids []string) string {
	if len(ids) <= named {
		return strings.Join(ids, ", ")
	}

	return fmt.Sprintf("%s and %d more", strings.Join(ids[:named], ", "), len(ids)-named)
}
