package doctor

import "context"

// classes checks machine classes against the rack.
func (e *exam) classes(context.Context) {
	if e.Classes == "" {
		e.skip("class", "no class was given (--class FILE)")

		return
	}
}
