package config

import (
	"fmt"
	"time"
)

// Where images are kept.
const (
	ScopeAuto    = "auto"
	ScopeSilo    = "silo"
	ScopeProject = "project"
)

// Images says where images are kept, how many are brought at once, and for how
// long unused ones stay.
type Images struct {
	// Scope is ScopeAuto, ScopeSilo or ScopeProject.
	Scope string
	// Uploads is the most uploads at once.
	Uploads int
	// Keep is for how long an unused image is kept, 0 for ever; the Newest of each
	// place always are.
	Keep   time.Duration
	Newest int
	// PruneSilo says that unused images of the silo are removed too.
	PruneSilo bool
}

func imageOptions() []option {
	return []option{
		{
			flag: "image-scope", env: "IMAGE_SCOPE", kind: "scope", def: ScopeAuto, required: true,
			help: "Where Talos images are kept, unless the class says silo or project: silo (shared by all projects), project, " +
				"or auto (silo if the token may)",
			field: func(c *Config) any { return &c.Images.Scope },
			read:  readScope,
		},
		{
			flag: "max-uploads", env: "MAX_UPLOADS", kind: "number", def: "4", required: true,
			help: "Image uploads at once, 1 to 16; each takes up to 25 MiB of memory, so there are fewer under a GOMEMLIMIT, " +
				"and twice the image's size of storage quota",
			field: func(c *Config) any { return &c.Images.Uploads },
			read:  number(1, 16, func(c *Config) *int { return &c.Images.Uploads }),
		},
	}
}

func readScope(c *Config, text string) error {
	switch text {
	case ScopeAuto, ScopeSilo, ScopeProject:
		c.Images.Scope = text

		return nil
	default:
		return fmt.Errorf("%s is none of auto, silo and project", shown(text))
	}
}
