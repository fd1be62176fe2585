package image

import (
	"context"
	"slices"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// superseded deletes the images that ended runs have left in a project although
// the silo has the same one: the rack may carry out a create call long after
// its caller has died, when the next process has already made and promoted its
// own. Nobody would ever find such an image, for the silo is looked at first.
//
// One that a disk of the project stems from stays. A machine that is just to be
// made from one asks for the image again.
func (s *sweep) superseded(ctx context.Context, projectID string, disks []oxide.Disk, now time.Time, left remains) error {
	if !s.m.silo() {
		return nil
	}

	images, err := s.m.cfg.Rack.ListImages(ctx, projectID)
	if err != nil {
		return err
	}

	images = slices.DeleteFunc(images, func(img oxide.Image) bool {
		mark, ok := s.m.mark(img.Description, naming.KindImage)

		return !ok || mark.Run == s.m.cfg.Run || slices.ContainsFunc(disks, func(d oxide.Disk) bool { return d.ImageId == img.Id })
	})
	if len(images) == 0 {
		return nil
	}

	silo, err := s.m.listSilo(ctx, naming.ImageIdentity{}, aim{})
	if err != nil {
		return err
	}

	for _, img := range images {
		mark, _ := naming.Parse(img.Description)
		if !slices.ContainsFunc(silo, func(other oxide.Image) bool { return sameImage(other, mark) }) {
			continue
		}

		left.runs[mark.Run] = true

		if s.dead(mark.Run, now) {
			if err := s.deleteImage(ctx, projectID, img, mark.Run); err != nil {
				return err
			}
		}
	}

	return nil
}

func sameImage(img oxide.Image, as naming.Mark) bool {
	mark, ok := naming.Parse(img.Description)

	return ok && mark.Kind == naming.KindImage && mark.Key == as.Key && *mark.Image == *as.Image
}

func (s *sweep) deleteImage(ctx context.Context, projectID string, img oxide.Image, run string) error {
	s.m.cfg.Log.Info("removing an image that an upload has left behind: the silo has the same",
		zap.String("oxide.image.id", img.Id), zap.String("oxide.image.name", string(img.Name)),
		zap.String("oxide.project.id", projectID), zap.String("run", run))

	err := s.m.deleteSerially(ctx, func() error { return s.m.cfg.Rack.DeleteImage(ctx, img.Id) })
	if err == nil || rack.ClassOf(err) == rack.ClassGone {
		return nil
	}

	return err
}
