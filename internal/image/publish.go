package image

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/oxidecomputer/oxide.go/oxide"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// maxName is the rack's limit for names.
const maxName = 63

// content is what an import put into an image, recorded with it.
type content struct {
	length uint64 // of the raw disk in bytes
	stream string // SHA-256 of the stream as downloaded, in hex
	chunks string // see digest, in hex
}

// publish makes the image from the snapshot and promotes it when the silo is
// the place. Who lost a race answers the winner's image.
func (i *importer) publish(ctx context.Context, snapshotID string, taken map[string]bool, c content) (oxide.Image, error) {
	i.job.enter(PhasePublishing)

	img, made, err := i.createImage(ctx, snapshotID, taken, c)
	if err != nil {
		return oxide.Image{}, err
	}

	if img.ProjectId == "" || !i.m.aimOf(i.job).silo {
		return img, nil
	}

	if !made && !i.m.ours(img.Description, naming.KindImage) {
		return img, nil
	}

	return i.m.promote(ctx, i.job.identity, img, made), nil
}

// createImage makes the image in the project. It also tells whether this
// import made the image that it answers.
func (i *importer) createImage(ctx context.Context, snapshotID string, taken map[string]bool, c content) (oxide.Image, bool, error) {
	id, s := i.job.identity, i.scratch

	name := naming.Image(id)
	if taken[name] {
		name = otherName(name)
	}

	delay := firstStepPause

	for try := 1; ; try++ {
		img, err := i.m.cfg.Rack.CreateImage(ctx, s.project, i.m.imageCreate(id, name, snapshotID, c))
		if err == nil {
			return *img, true, nil
		}

		if ctx.Err() != nil {
			return oxide.Image{}, false, context.Cause(ctx)
		}

		class := rack.ClassOf(err)
		if !class.Passing() && class != rack.ClassExists {
			return oxide.Image{}, false, err
		}

		// The name is the key: look whose it is before asking again.
		winner, ok, lookErr := i.m.findIn(ctx, id, s.project)
		if ok {
			mark, _ := naming.Parse(winner.Description)

			return winner, i.m.ours(winner.Description, naming.KindImage) && mark.Run == i.m.cfg.Run, nil
		}

		if class == rack.ClassExists && lookErr == nil {
			name = otherName(naming.Image(id))
		}

		if try == stepTries {
			return oxide.Image{}, false, err
		}

		if err := pause(ctx, delay); err != nil {
			return oxide.Image{}, false, err
		}

		delay = min(2*delay, maxStepPause)
	}
}

func (m *Manager) imageCreate(id naming.ImageIdentity, name, snapshotID string, c content) oxide.ImageCreate {
	mark := naming.Mark{
		Owner: m.cfg.Owner, Provider: m.cfg.Provider, Run: m.cfg.Run,
		Kind: naming.KindImage, Key: id.Key(), Image: id.Mark(),
	}

	return oxide.ImageCreate{
		Name:        oxide.Name(name),
		Description: mark.Describe(c.describe(id)),
		Os:          "Talos Linux",
		Version:     id.Talos,
		Source:      oxide.ImageSource{Value: &oxide.ImageSourceSnapshot{Id: snapshotID}},
	}
}

// describe is the sentence for people before the mark. Both sums stand in the
// shorter base64 of URLs, as there is no room for hex; with a long provider ID
// the end is cut, and the log still has them whole.
func (c content) describe(id naming.ImageIdentity) string {
	return fmt.Sprintf("Talos %s, raw %d bytes, sha256 %s, chunks %s", id.Talos, c.length, short(c.stream), short(c.chunks))
}

func short(sum string) string {
	b, err := hex.DecodeString(sum)
	if err != nil {
		return sum
	}

	return base64.RawURLEncoding.EncodeToString(b)
}

// otherName is what an image is called when something foreign has its name.
func otherName(name string) string {
	suffix := "-" + naming.NewRun()
	if len(name) > maxName-len(suffix) {
		name = strings.TrimRight(name[:maxName-len(suffix)], "-")
	}

	return name + suffix
}

// promote moves a project's image to the silo. It answers the image to use: the
// same one wherever it ends up, or the silo's own if that was there first, in
// which case one that this import made is removed again. An image that can not
// be promoted is good in its project.
func (m *Manager) promote(ctx context.Context, id naming.ImageIdentity, img oxide.Image, made bool) oxide.Image {
	log := m.imageLog(id).With(zap.String("oxide.image.id", img.Id))
	delay := firstStepPause

	for try := 1; ; try++ {
		promoted, err := m.cfg.Rack.PromoteImage(ctx, img.Id)
		if err == nil {
			return *promoted
		}

		if ctx.Err() != nil {
			return img
		}

		switch rack.ClassOf(err) {
		case rack.ClassForbidden:
			m.refusePromotion(err)

			return img
		case rack.ClassExists:
			return m.yield(ctx, id, img, made, log)
		case rack.ClassOK, rack.ClassGone, rack.ClassInvalid, rack.ClassCredentials, rack.ClassCapacity,
			rack.ClassConflict, rack.ClassBusy, rack.ClassInternal, rack.ClassVersion, rack.ClassLost, rack.ClassFenced:
			// A second call for an image that did get promoted is refused.
			if now, viewErr := m.cfg.Rack.ViewImage(ctx, img.Id); viewErr == nil && now.ProjectId == "" {
				return *now
			}
		}

		if try == stepTries || !rack.ClassOf(err).Passing() || pause(ctx, delay) != nil {
			log.Warn("image stays in its project: it could not be promoted", zap.Error(err))

			return img
		}

		delay = min(2*delay, maxStepPause)
	}
}

// yield gives way to an image that has the name in the silo.
func (m *Manager) yield(ctx context.Context, id naming.ImageIdentity, img oxide.Image, made bool, log *zap.Logger) oxide.Image {
	winner, ok, err := m.findIn(ctx, id, "")
	if err != nil || !ok {
		log.Warn("image stays in its project: its name is taken in the silo", zap.Error(err))

		return img
	}

	if !made {
		return winner
	}

	for try, delay := 1, firstStepPause; ; try, delay = try+1, min(2*delay, maxStepPause) {
		err := m.cfg.Rack.DeleteImage(ctx, img.Id)

		switch {
		case err == nil, rack.ClassOf(err) == rack.ClassGone:
			return winner
		case try == stepTries, pause(ctx, delay) != nil:
			log.Warn("an image that lost to the silo's stays in its project", zap.Error(err))

			return winner
		}
	}
}
