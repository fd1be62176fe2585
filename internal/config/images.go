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
	// Keep is for how long an unused image of ours is kept, 0 for ever; the Newest
	// of each place always are.
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
		{
			flag: "image-keep", env: "IMAGE_KEEP", kind: "duration", def: "336h", required: true,
			help:  "How long an image of ours that nothing uses is kept, 1s to 87600h, or 0 for ever; --janitor says whether it is removed then",
			field: func(c *Config) any { return &c.Images.Keep },
			read:  readImageKeep,
		},
		{
			flag: "image-keep-newest", env: "IMAGE_KEEP_NEWEST", kind: "number", def: "2", required: true,
			help:  "How many of our newest images each project, and the silo, keeps all the same, 0 to 100",
			field: func(c *Config) any { return &c.Images.Newest },
			read:  number(0, 100, func(c *Config) *int { return &c.Images.Newest }),
		},
		{
			flag: "image-prune-silo", env: "IMAGE_PRUNE_SILO", kind: "switch", def: "off", required: true,
			help:  "Whether unused images of ours are removed from the silo too, where others may count on them: off or on",
			field: func(c *Config) any { return (*onSwitch)(&c.Images.PruneSilo) },
			read:  readPruneSilo,
		},
	}
}

func readPruneSilo(c *Config, text string) error {
	on, err := onOff(text)
	c.Images.PruneSilo = on

	return err
}

// maxKeep is ten years.
const maxKeep = 87600 * time.Hour

func readImageKeep(c *Config, text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d != 0 && d < time.Second || d > maxKeep {
		return fmt.Errorf("%s is not a time of 1s to 87600h, such as 336h, nor 0", shown(text))
	}

	c.Images.Keep = d

	return nil
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
