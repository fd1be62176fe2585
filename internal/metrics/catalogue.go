package metrics

import (
	dto "github.com/prometheus/client_model/go"
)

// Family is a metric with its series, as a scrape has it.
type Family = dto.MetricFamily

// The names of all metrics, which dashboards and alerts out there know.
const (
	rackCalls      = "oipo_rack_requests_total"
	rackDuration   = "oipo_rack_request_duration_seconds"
	stepDuration   = "oipo_step_duration_seconds"
	retries        = "oipo_retries_total"
	provisionTime  = "oipo_request_provision_duration_seconds"
	removalTime    = "oipo_request_removal_duration_seconds"
	panics         = "oipo_panics_total"
	uploads        = "oipo_image_uploads_total"
	uploadTime     = "oipo_image_upload_duration_seconds"
	written        = "oipo_image_written_bytes_total"
	skipped        = "oipo_image_skipped_zero_bytes_total"
	janitorActions = "oipo_janitor_actions_total"
	leaseEvents    = "oipo_lease_events_total"
	machineStarts  = "oipo_machine_starts_total"
	omniLinks      = "oipo_omni_links_ended_total"

	build       = "oipo_build_info"
	requests    = "oipo_requests"
	atStep      = "oipo_requests_at_step"
	removals    = "oipo_removals_waiting"
	instances   = "oipo_instances"
	machines    = "oipo_machines"
	orphans     = "oipo_orphans"
	brake       = "oipo_janitor_brake"
	lastLook    = "oipo_janitor_last_look_timestamp_seconds"
	oddStates   = "oipo_stored_states_odd"
	imageJobs   = "oipo_image_jobs"
	ready       = "oipo_ready"
	needs       = "oipo_need_met"
	notes       = "oipo_notes"
	leaseHeld   = "oipo_lease_held"
	leaseTerm   = "oipo_lease_term"
	queueLength = "oipo_queue_length"
	workers     = "oipo_workers"
	busy        = "oipo_workers_busy"
	creates     = "oipo_creates_in_flight"
	createLimit = "oipo_creates_limit"
	createQueue = "oipo_creates_waiting"
)

// The kinds of metrics.
const (
	counter   = "counter"
	gauge     = "gauge"
	histogram = "histogram"
)

// Definition is one metric.
type Definition struct {
	Name, Kind, Help string
	Labels           []Label

	buckets []float64
}

// Label is one label of a metric with the values that it may have; Open says that
// they are not all known here.
type Label struct {
	Name   string
	Values []string
	Open   string
}

//nolint:gochecknoglobals // tables
var (
	classes = []string{
		"ok", "gone", "exists", "invalid", "credentials", "forbidden", "capacity",
		"conflict", "busy", "internal", "version", "lost", "fenced",
	}
	steps   = []string{"plan", "image", "instance", "config", "start"}
	results = []string{"ok", "error"}

	short = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}
	long  = []float64{1, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200}
)

// catalogue are all metrics of ours, in the order in which they are explained.
//
//nolint:gochecknoglobals // a table
var catalogue = []Definition{
	{Name: build, Kind: gauge, Help: "What this build is; always 1.", Labels: []Label{
		{Name: "version", Open: "the version"}, {Name: "commit", Open: "the commit"}, {Name: "go_version", Open: "the version of Go"},
		{Name: "oxide_api_version", Open: "the rack's API version that it speaks"},
	}},
	{Name: ready, Kind: gauge, Help: "Whether all needs are met, as /readyz says: 1 or 0."},
	{Name: needs, Kind: gauge, Help: "Whether something that the daemon can not do without is there: 1 or 0.", Labels: []Label{
		{Name: "need", Values: []string{"omni", "rack"}},
	}},
	{Name: notes, Kind: gauge, Help: "Whether a person should look at something, as health says: 1 for each subject.", Labels: []Label{
		{Name: "subject", Open: "such as machines, projects, removals, janitor, image uploads, stored states"},
	}},

	{Name: requests, Kind: gauge, Help: "Machine requests by stage in Omni, as of the last round of the daemon that works.", Labels: []Label{
		{Name: "stage", Values: []string{"new", "provisioning", "provisioned", "failed", "removing"}},
	}},
	{Name: atStep, Kind: gauge, Help: "Machine requests that are not yet provisioned, by the step that they are at.", Labels: []Label{
		{Name: "step", Values: steps},
	}},
	{Name: stepDuration, Kind: histogram, buckets: short, Help: "Duration of one run of a step or of a removal, and what came of it.", Labels: []Label{
		{Name: "step", Values: append(append([]string{}, steps...), "remove")}, {Name: "result", Values: []string{"done", "waiting", "failed"}},
	}},
	{Name: provisionTime, Kind: histogram, buckets: long, Help: "Time from the plan of a machine until it was seen running."},
	{Name: removalTime, Kind: histogram, buckets: long, Help: "Time from the first try at removing a machine until nothing of it was left."},
	{Name: removals, Kind: gauge, Help: "Removals that wait, by whether they pass by themselves (later) or a person must mend something (mend).", Labels: []Label{
		{Name: "for", Values: []string{"later", "mend"}},
	}},
	{Name: retries, Kind: counter, Help: "What is done again later, and the class of the cause.", Labels: []Label{
		{Name: "what", Values: []string{"step", "removal", "image_write", "image_import"}},
		{Name: "class", Values: append(append([]string{}, classes[1:]...), "other")},
	}},
	{Name: panics, Kind: counter, Help: "Steps and removals that ended in a panic: a fault of this program."},

	{Name: queueLength, Kind: gauge, Help: "Requests that wait for a worker."},
	{Name: workers, Kind: gauge, Help: "Workers, each for one request at a time."},
	{Name: busy, Kind: gauge, Help: "Workers that run a step or a removal now."},
	{Name: creates, Kind: gauge, Help: "Places for creating instances that are taken now."},
	{Name: createLimit, Kind: gauge, Help: "Places for creating instances."},
	{Name: createQueue, Kind: gauge, Help: "Requests that wait for a place to create their instance."},

	{Name: rackCalls, Kind: counter, Help: "Calls to the rack by what was being done, each page of a list one, and the class of the outcome.", Labels: []Label{
		{Name: "operation", Open: "the words that error texts begin with, such as creating the instance"}, {Name: "result", Values: classes},
	}},
	{Name: rackDuration, Kind: histogram, buckets: short, Help: "Duration of calls to the rack.", Labels: []Label{
		{Name: "operation", Open: "as above"},
	}},

	{Name: imageJobs, Kind: gauge, Help: "Images that are being brought, by what is being done.", Labels: []Label{
		{Name: "phase", Values: []string{"looking", "queued", "quota", "opening", "uploading", "sealing", "publishing", "failed"}},
	}},
	{Name: uploads, Kind: counter, Help: "Tries at bringing an image that ended.", Labels: []Label{{Name: "result", Values: results}}},
	{Name: uploadTime, Kind: histogram, buckets: long, Help: "Duration of such tries, from opening the image at the factory to the end.", Labels: []Label{
		{Name: "result", Values: results},
	}},
	{Name: written, Kind: counter, Help: "Bytes of images that were written into the rack."},
	{Name: skipped, Kind: counter, Help: "Bytes of images that were not written because they are zeros."},

	{Name: instances, Kind: gauge, Help: "Instances with this provider's mark by state, in the projects with provisioned machines.", Labels: []Label{
		{Name: "state", Values: []string{
			"creating", "starting", "running", "stopping", "stopped", "rebooting", "migrating", "repairing", "failed", "destroyed",
		}},
	}},
	{Name: machines, Kind: gauge, Help: "Provisioned machines by what the last round found.", Labels: []Label{
		{Name: "finding", Values: []string{"well", "stopped", "failed", "vanished", "unjoined", "unreadable"}},
	}},
	{Name: machineStarts, Kind: counter, Help: "Starts of machines that were found stopped, where the class asks for that.", Labels: []Label{{Name: "result", Values: results}}},

	{Name: orphans, Kind: gauge, Help: "Objects in the rack with this provider's mark whose request is gone, as of the last look.", Labels: []Label{
		{Name: "kind", Values: []string{"instance", "boot", "data", "ip", "group"}},
	}},
	{Name: janitorActions, Kind: counter, Help: "What the janitor did, each try one.", Labels: []Label{
		{Name: "action", Values: []string{"stop", "delete", "release", "destroy", "tidy"}},
		{Name: "kind", Open: "of what: instance, boot, data, ip, group, request, state or status"},
	}},
	{Name: brake, Kind: gauge, Help: "Whether the janitor removes nothing until a person decides: 1 or 0."},
	{Name: lastLook, Kind: gauge, Help: "When the janitor last looked at everything, in seconds since 1970; 0 before that."},
	{Name: oddStates, Kind: gauge, Help: "Stored states that are not as this version makes them.", Labels: []Label{
		{Name: "oddity", Values: []string{"other_request", "newer_format", "other_owner", "published", "unknown_step", "unknown_fields"}},
	}},

	{Name: leaseHeld, Kind: gauge, Help: "Whether this replica works: 1 or 0, always 1 without a lease."},
	{Name: leaseTerm, Kind: gauge, Help: "Term of the lease as last seen; 0 without one."},
	{Name: leaseEvents, Kind: counter, Help: "What happened to the lease in this replica.", Labels: []Label{
		{Name: "event", Values: []string{"taken", "lost", "renewal_failed"}},
	}},
	{Name: omniLinks, Kind: counter, Help: "Links to Omni that ended, by cause.", Labels: []Label{
		{Name: "cause", Values: []string{"ended", "away", "key", "unregistered", "permission", "other_key", "tls", "proxy", "other"}},
	}},
}

// Definitions are all metrics of ours.
func Definitions() []Definition { return catalogue }

func (d Definition) labels() []string {
	var names []string
	for _, l := range d.Labels {
		names = append(names, l.Name)
	}

	return names
}

// atStart are the labels of all series that are there from the start: every
// combination, where all values are known.
func (d Definition) atStart() [][]string {
	combinations := [][]string{{}}

	for _, l := range d.Labels {
		if l.Open != "" {
			return nil
		}

		var longer [][]string

		for _, c := range combinations {
			for _, v := range l.Values {
				longer = append(longer, append(append([]string{}, c...), v))
			}
		}

		combinations = longer
	}

	return combinations
}

// Series are the names of all series of ours, which for histograms are not those
// of the metrics.
func Series() map[string]bool {
	names := map[string]bool{}

	for _, d := range catalogue {
		if d.Kind != histogram {
			names[d.Name] = true

			continue
		}

		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			names[d.Name+suffix] = true
		}
	}

	return names
}
