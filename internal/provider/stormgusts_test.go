package provider

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	simomni "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/omni"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// gust is one thing of a storm: something goes wrong, or is asked for.
type gust struct {
	// After is the time since the one before.
	After time.Duration
	Kind  gustKind
	// Number says how many, or which one.
	Number int
	// Lasts is how long it goes on.
	Lasts time.Duration
	// Omni and Rack are the faults that it brings.
	Omni *simomni.Fault
	Rack *simrack.Fault
}

type gustKind string

const (
	gustAsk     gustKind = "machines are asked for"
	gustRemove  gustKind = "machines are removed"
	gustVanish  gustKind = "a request is removed by force"
	gustRack    gustKind = "fault of the rack"
	gustWrite   gustKind = "fault of a write to Omni"
	gustCut     gustKind = "Omni cuts all streams"
	gustDrop    gustKind = "Omni's connections break"
	gustStale   gustKind = "Omni's bookmarks are stale"
	gustAway    gustKind = "Omni is away"
	gustFactory gustKind = "the factory fails"
	gustKill    gustKind = "a replica is killed"
	gustRestart gustKind = "a replica is restarted"
)

// String is the gust in a failure's schedule.
func (g gust) String() string {
	text := fmt.Sprintf("+%s %s", g.After, g.Kind)

	if g.Number > 0 {
		text += fmt.Sprintf(", %d", g.Number)
	}

	if g.Lasts > 0 {
		text += ", for " + g.Lasts.String()
	}

	for _, fault := range []any{g.Omni, g.Rack} {
		if raw, err := json.Marshal(fault); err == nil && string(raw) != "null" {
			text += " " + string(raw)
		}
	}

	return text
}

// stormRequest is the ID of the request with a number.
func stormRequest(n int) string { return fmt.Sprintf("storm-%04d-x", n) }

// stormOf is the schedule of a storm over a number of requests. It is a function
// of the seed alone.
func stormOf(seed uint64, requests int) []gust {
	var (
		rng   = rand.New(rand.NewPCG(seed, 1))
		asked int
		all   []gust
		// As many as the janitor removes without asking a person.
		mayVanish = 2
	)

	for asked < requests {
		g := gust{After: seconds(rng, 1, 40)}

		switch p := rng.IntN(100); {
		case p < 14:
			g.Kind, g.Number = gustAsk, min(1+rng.IntN(6), requests-asked)
			asked += g.Number
		case p < 24:
			g.Kind, g.Number = gustRemove, 1+rng.IntN(5)
		case p < 26 && mayVanish > 0:
			g.Kind = gustVanish
			mayVanish--
		case p < 72:
			g.Kind, g.Rack = gustRack, rackGust(rng, asked)
		default:
			g.elsewhere(rng)
		}

		all = append(all, g)
	}

	return all
}

// elsewhere is what goes wrong outside of the rack.
func (g *gust) elsewhere(rng *rand.Rand) {
	switch p := rng.IntN(20); {
	case p < 7:
		g.Kind, g.Omni = gustWrite, &simomni.Fault{
			Verb: pick(rng, "", "Create", "Update", "Destroy", "Teardown"), Number: 1 + rng.IntN(4), After: rng.IntN(2) == 0,
		}
	case p < 9:
		g.Kind = gustCut
	case p < 11:
		g.Kind = gustDrop
	case p < 12:
		g.Kind = gustStale
	case p < 13:
		g.Kind, g.Lasts = gustAway, seconds(rng, 5, 400)
	case p < 16:
		g.Kind, g.Number, g.Lasts = gustFactory, rng.IntN(factoryFaults), seconds(rng, 10, 300)
	case p < 18:
		g.Kind, g.Number, g.Lasts = gustKill, rng.IntN(replicas), seconds(rng, 0, 60)
	default:
		g.Kind, g.Number = gustRestart, rng.IntN(replicas)
	}
}

func pick[T any](rng *rand.Rand, all ...T) T { return all[rng.IntN(len(all))] }

func seconds(rng *rand.Rand, from, to int) time.Duration {
	return time.Duration(from+rng.IntN(to-from+1)) * time.Second
}

// Calls of the daemon that a storm disturbs: those that change something, and
// those by which it learns what became of them.
var stormCalls = []string{
	"instance_create", "instance_create", "instance_start", "instance_stop", "instance_delete", "instance_view", "instance_list",
	"disk_create", "disk_delete", "disk_delete", "disk_list", "disk_view", "disk_bulk_write_import_start", "disk_bulk_write_import",
	"disk_bulk_write_import_stop", "disk_finalize_import", "snapshot_view", "snapshot_list", "snapshot_delete", "image_create", "image_list",
	"image_promote", "project_view", "project_list", "vpc_subnet_view", "current_user_view", "",
}

// rackGust is a fault of the rack with so many requests asked for.
func rackGust(rng *rand.Rand, asked int) *simrack.Fault {
	switch p := rng.IntN(20); {
	case p < 10:
		return actionGust(rng)
	case p < 17:
		return conditionGust(rng)
	default:
		return eventGust(rng, asked)
	}
}

func actionGust(rng *rand.Rand) *simrack.Fault {
	f := &simrack.Fault{
		Token: daemonToken, Operation: pick(rng, stormCalls...), Count: 1 + rng.IntN(4), Skip: rng.IntN(3), Until: simrack.Duration(seconds(rng, 30, 600)),
	}

	switch f.Action = pick(rng, simrack.ActionError, simrack.ActionError, simrack.ActionProxyPage, simrack.ActionDelay, simrack.ActionHang,
		simrack.ActionReset, simrack.ActionLoseAnswer, simrack.ActionLoseAnswer, simrack.ActionCommitLate, simrack.ActionCommitLate,
		simrack.ActionErrorAfter, simrack.ActionTruncate, simrack.ActionWrongContent, simrack.ActionUnknownState,
		simrack.ActionStripHeader, simrack.ActionLostStop, simrack.ActionFaultDelete); f.Action {
	case simrack.ActionError, simrack.ActionErrorAfter:
		f.Status = pick(rng, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
			http.StatusGatewayTimeout, http.StatusTooManyRequests, http.StatusInsufficientStorage)
	case simrack.ActionDelay, simrack.ActionCommitLate:
		// Within what a teardown waits for.
		f.Delay = simrack.Duration(seconds(rng, 1, 100))
	case simrack.ActionWrongContent:
		f.Body, f.ContentType = "<html>Please log in.</html>", "text/html"
	case simrack.ActionUnknownState:
		f.Value = "meditating"
	case simrack.ActionStripHeader:
		f.Header = "X-Request-Id"
	case simrack.ActionLostStop:
		f.Operation = "instance_stop"
	case simrack.ActionFaultDelete:
		f.Operation = "disk_delete"
	default:
	}

	return f
}

func conditionGust(rng *rand.Rand) *simrack.Fault {
	f := &simrack.Fault{Until: simrack.Duration(seconds(rng, 20, 600))}

	switch f.Condition = pick(rng, simrack.ConditionMaintenance, simrack.ConditionOldAPI, simrack.ConditionTokenRevoked,
		simrack.ConditionTokenExpired, simrack.ConditionRole, simrack.ConditionRole, simrack.ConditionStuck, simrack.ConditionStuck,
		simrack.ConditionPantryAway, simrack.ConditionPantryGone, simrack.ConditionSledAway, simrack.ConditionQuota); f.Condition {
	case simrack.ConditionMaintenance:
		f.Sagas, f.Away = simrack.Duration(seconds(rng, 5, 120)), simrack.Duration(seconds(rng, 5, 300))
	case simrack.ConditionTokenRevoked, simrack.ConditionTokenExpired:
		f.Token = daemonToken
	case simrack.ConditionRole:
		f.Token, f.Project = daemonToken, pick(rng, "", "demo")
		f.Role = pick(rng, simrack.RoleViewer, simrack.RoleLimitedCollaborator)

		if f.Project == "" {
			f.Role = pick(rng, simrack.SiloNone, simrack.RoleViewer)
		}
	case simrack.ConditionStuck:
		where := pick(rng, [2]string{"instance", "starting"}, [2]string{"instance", "stopping"}, [2]string{"disk", "creating"},
			[2]string{"disk", "finalizing"}, [2]string{"disk", "detaching"}, [2]string{"snapshot", "creating"})
		f.Kind, f.State = where[0], where[1]
	case simrack.ConditionPantryAway, simrack.ConditionPantryGone:
		f.Pantry = pick(rng, simrack.DefaultPantries()...)
	case simrack.ConditionSledAway:
		f.Sled, f.Delay = pick(rng, simrack.DefaultSleds(stormSleds)...).Name, simrack.Duration(seconds(rng, 30, 120))
	case simrack.ConditionQuota:
		none := int64(rng.IntN(8))
		f.CPUs = &none
	default:
	}

	return f
}

func eventGust(rng *rand.Rand, asked int) *simrack.Fault {
	request := stormRequest(rng.IntN(asked + 1))
	f := &simrack.Fault{Instance: naming.Instance(request)}

	switch f.Event = pick(rng, simrack.EventInstanceCrashed, simrack.EventInstanceHalted, simrack.EventInstanceReboot, simrack.EventInstanceMigrated,
		simrack.EventInstanceDeleted, simrack.EventDiskDeleted, simrack.EventDiskFaulted, simrack.EventPantryForgetting, simrack.EventProjectRenamed); f.Event {
	case simrack.EventDiskDeleted, simrack.EventDiskFaulted:
		f.Instance, f.Disk = "", naming.Disk("boot", request)
	case simrack.EventPantryForgetting:
		f.Instance, f.Pantry = "", pick(rng, simrack.DefaultPantries()...)
	case simrack.EventProjectRenamed:
		f.Instance, f.Project, f.To = "", "demo", "demo-renamed"
	default:
	}

	return f
}
