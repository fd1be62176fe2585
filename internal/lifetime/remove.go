package lifetime

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// errWanted is an image that somebody has come to use since the look.
var errWanted = errors.New("it is used again")

// retire removes an image if another look judges it the same. began is when the
// first one did.
func (l *Lifetime) retire(ctx context.Context, i Image, began time.Time) error {
	if l.cfg.Images != nil {
		done, ok := l.cfg.Images.Withdraw(i.mark, i.ID, began)
		if !ok {
			return errWanted
		}

		defer done()
	}

	return l.remove(ctx, i)
}

func (l *Lifetime) remove(ctx context.Context, i Image) error {
	seen, err := l.look(ctx)
	if err != nil {
		return err
	}

	now := l.judge(seen, time.Now())

	at := slices.IndexFunc(now, func(other Image) bool { return other.ID == i.ID })
	if at < 0 {
		return nil // somebody else was quicker
	}

	if now[at].Kept != "" {
		return errWanted
	}

	l.cfg.Log.Info("removing an unused image", now[at].fields()...)

	err = l.cfg.Rack.DeleteImage(ctx, i.ID)
	if err != nil && rack.ClassOf(err) != rack.ClassGone {
		return err
	}

	// Left to the next look if this fails: the image is gone then.
	return l.cfg.Omni.ForgetUse(ctx, i.ID)
}

// Report is what a look by hand has found.
type Report struct {
	Images []Image `json:"images"`
	// Uploads are those under way, as their processes last told.
	Uploads []Upload `json:"uploads"`
	// Unread are projects that the token may not look into, SiloHidden that it may
	// not list the silo's images, Partial that it may not list the projects.
	Unread     []string `json:"unread,omitempty"`
	SiloHidden bool     `json:"silo_hidden,omitempty"`
	Partial    bool     `json:"partial,omitempty"`
}

// Upload is an image on its way.
type Upload struct {
	Run string `json:"run"`
	// At is when its process last told of it.
	At        time.Time `json:"at"`
	Talos     string    `json:"talos"`
	Schematic string    `json:"schematic"`
	ProjectID string    `json:"project_id,omitempty"` // empty for the silo
	Phase     string    `json:"phase"`
	Done      uint64    `json:"done_bytes"`
	Total     uint64    `json:"total_bytes"`
	Rate      uint64    `json:"bytes_per_second"`
	// Left is in seconds, 0 if not known.
	Left  int64  `json:"seconds_left"`
	Waits string `json:"waits"`
}

// Percent is how much of it is done.
func (u Upload) Percent() uint64 {
	if u.Total == 0 {
		return 0
	}

	return 100 * u.Done / u.Total
}

// Find takes a look for a person. It changes nothing.
func (l *Lifetime) Find(ctx context.Context) (*Report, error) {
	s, err := l.look(ctx)
	if err != nil {
		return nil, err
	}

	r := &Report{Images: l.judge(s, time.Now()), Uploads: []Upload{}, Unread: s.unread, SiloHidden: s.siloHidden, Partial: !s.whole}
	if r.Images == nil {
		r.Images = []Image{}
	}

	for _, run := range s.runs {
		for _, u := range run.Uploads {
			r.Uploads = append(r.Uploads, describeUpload(run, u))
		}
	}

	return r, nil
}

func describeUpload(run image.RunInfo, u image.JobInfo) Upload {
	out := Upload{
		Run: run.ID, At: run.At, Talos: u.Identity.Talos, Schematic: u.Identity.Schematic, ProjectID: u.ProjectID,
		Phase: string(u.Phase), Done: u.Done, Total: u.Total, Rate: uint64(max(u.Rate, 0)), Waits: u.Waits,
	}

	if out.Rate > 0 && out.Total > out.Done {
		out.Left = int64((out.Total - out.Done) / out.Rate) //nolint:gosec // seconds of an upload
	}

	return out
}

// Remove removes the images of a report that nothing keeps, each after another
// look. It goes on after a failure, and answers how many are gone.
func (l *Lifetime) Remove(ctx context.Context, r *Report) (removed int, err error) {
	var failures []error

	for _, i := range r.Images {
		if i.Kept != "" {
			continue
		}

		if err := l.retire(ctx, i, time.Now()); err != nil {
			failures = append(failures, errors.New(i.Name+": "+err.Error()))

			continue
		}

		removed++
	}

	return removed, errors.Join(failures...)
}
