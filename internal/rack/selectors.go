package rack

import (
	"github.com/google/uuid"
	"github.com/oxidecomputer/oxide.go/oxide"
)

// selectorProject is the parent to send beside a name or ID: the rack wants the
// parent with a name and refuses it with an ID.
func selectorProject(parentID, nameOrID string) oxide.NameOrId {
	if _, err := uuid.Parse(nameOrID); err == nil {
		return ""
	}

	return oxide.NameOrId(parentID)
}
