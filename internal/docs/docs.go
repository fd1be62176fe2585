// Package docs holds the pages for users that are longer than the README.
//
// Pages that say what the code knows are made from the code: "make generate"
// writes them, "make generate-check" and a test here tell when they are old.
package docs

import _ "embed"

// MachineClass is machine-class.md, on all fields of a machine class.
//
//go:embed machine-class.md
var MachineClass string

// Errors is errors.md, on what people see of each kind of error.
//
//go:embed errors.md
var Errors string

// Metrics is metrics.md, on all metrics.
//
//go:embed metrics.md
var Metrics string

// Operating is operating.md, on health, commands and logs.
//
//go:embed operating.md
var Operating string

// Networks is networks.md, on proxies, certificates and credentials.
//
//go:embed networks.md
var Networks string

// Images is images.md, on where images are kept, for how long, and how one comes
// in by hand.
//
//go:embed images.md
var Images string
