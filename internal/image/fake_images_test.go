package image_test

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

func (r *fakeRack) ListImages(ctx context.Context, projectID string) (list []oxide.Image, err error) {
	op := "list images"
	if projectID == "" {
		op = "list silo"
	}

	err = r.call(ctx, op, func() error {
		for _, i := range r.images {
			if i.ProjectId == projectID {
				list = append(list, i.Image)
			}
		}

		return nil
	})
	if err != nil {
		return nil, err
	}

	return list, nil
}

func (r *fakeRack) ViewImage(ctx context.Context, id string) (img *oxide.Image, err error) {
	err = r.call(ctx, "view image", func() error {
		i := r.images[id]
		if i == nil {
			return notFound("image", id)
		}

		img = new(i.Image)

		return nil
	})

	return img, err
}

func (r *fakeRack) CreateImage(ctx context.Context, projectID string, c oxide.ImageCreate) (img *oxide.Image, err error) {
	err = r.call(ctx, "create image", func() error {
		src, ok := c.Source.AsSnapshot()
		if !ok {
			return invalid("no source")
		}

		s := r.snapshots[src.Id]
		if s == nil || s.ProjectId != projectID {
			return notFound("snapshot", src.Id)
		}

		if len(c.Description) > 512 || len(c.Os) > 64 || len(c.Version) > 64 || !naming.Legal(string(c.Name)) {
			return invalid("a field is too long, or the name is not legal")
		}

		if r.imageNamed(projectID, string(c.Name)) != nil {
			return exists("image", string(c.Name))
		}

		img = new(r.addImage(projectID, string(c.Name), c.Description, s.Size, s.data).Image)
		r.images[img.Id].Os, r.images[img.Id].Version = c.Os, c.Version

		return nil
	})
	if err != nil {
		return nil, err
	}

	return img, nil
}

func (r *fakeRack) imageNamed(projectID, name string) *fakeImage {
	for _, i := range r.images {
		if i.ProjectId == projectID && string(i.Name) == name {
			return i
		}
	}

	return nil
}

func (r *fakeRack) addImage(projectID, name, description string, size oxide.ByteCount, data map[uint64][]byte) *fakeImage {
	i := &fakeImage{Image: oxide.Image{
		Id: uuid.NewString(), Name: oxide.Name(name), Description: description, ProjectId: projectID, Size: size,
		TimeCreated: new(time.Now()),
	}, data: data}
	r.images[i.Id] = i

	return i
}

func (r *fakeRack) PromoteImage(ctx context.Context, id string) (img *oxide.Image, err error) {
	err = r.call(ctx, "promote image", func() error {
		i := r.images[id]

		switch {
		case i == nil:
			return notFound("image", id)
		case i.ProjectId == "":
			return invalid("Cannot promote a silo image")
		case r.imageNamed("", string(i.Name)) != nil:
			return exists("silo image", string(i.Name))
		}

		i.ProjectId = ""
		img = new(i.Image)

		return nil
	})
	if err != nil {
		return nil, err
	}

	return img, nil
}

func (r *fakeRack) DeleteImage(ctx context.Context, id string) error {
	return r.call(ctx, "delete image", func() error {
		if r.images[id] == nil {
			return notFound("image", id)
		}

		delete(r.images, id)

		return nil
	})
}
