package published

import (
	"fmt"
	"regexp"
	"strings"
)

// Described tells whether a description is the one that the published provider
// of this ID gives instances and disks: the whole text, nothing before or after.
func Described(description, providerID string) bool {
	return providerID != "" && description == "Managed by the Oxide Omni infrastructure provider ("+providerID+")."
}

// Object is an instance or a disk as the rack tells it.
type Object struct{ ID, Name, Description string }

// Claim is what of a machine is proved to be the published provider's.
type Claim struct {
	// Instance is the instance's ID.
	Instance string
	// Disks are the IDs of the disks made with it.
	Disks []string
	// Foreign says of each other disk that was asked about why it stays.
	Foreign map[string]string
}

// Claim tells what of a machine may be taken over. Names and descriptions can be
// given by anybody, stored IDs alone say nothing of what an object has become:
// only what both agree on is claimed. attached are the disks of the instance,
// all as the rack tells them now. The error says what does not agree; then
// nothing is claimed.
//
// The old form stores no disks: there the one disk that its releases made is the
// attached one with the name of the request.
func (m Machine) Claim(providerID, requestID string, instance Object, attached []Object) (Claim, error) {
	switch {
	case m.Form != FormOld && m.Form != FormNew:
		return Claim{}, fmt.Errorf("the stored state has the form %q, which names no instance", m.Form)
	case m.Instance == "":
		return Claim{}, fmt.Errorf("the stored state names no instance: it was not yet made, or its ID was lost")
	case !strings.EqualFold(instance.ID, m.Instance):
		return Claim{}, fmt.Errorf("instance %s is not the stored one, %s", instance.ID, m.Instance)
	case requestID == "" || instance.Name != requestID:
		return Claim{}, fmt.Errorf("instance %s has the name %q and not that of the request, %q", instance.ID, instance.Name, requestID)
	case !Described(instance.Description, providerID):
		return Claim{}, fmt.Errorf("the description of instance %s is not that of the provider %q", instance.ID, providerID)
	}

	c := Claim{Instance: instance.ID, Foreign: map[string]string{}}

	for _, d := range attached {
		if why := m.foreign(providerID, requestID, d); why != "" {
			c.Foreign[d.ID] = why
		} else {
			c.Disks = append(c.Disks, d.ID)
		}
	}

	return c, nil
}

// foreign says why a disk is not claimed, empty if it is.
func (m Machine) foreign(providerID, requestID string, d Object) string {
	if !Described(d.Description, providerID) {
		return fmt.Sprintf("its description is not that of the provider %q", providerID)
	}

	if m.Form == FormOld {
		if d.Name != requestID {
			return fmt.Sprintf("it has the name %q and not that of the request", d.Name)
		}

		return ""
	}

	for _, stored := range m.Disks {
		if !strings.EqualFold(stored.ID, d.ID) {
			continue
		}

		if stored.Name != d.Name || !diskName(d.Name, requestID) {
			return fmt.Sprintf("it has the name %q, stored is %q", d.Name, stored.Name)
		}

		return ""
	}

	return "it is not among the stored disks"
}

var extraDisk = regexp.MustCompile(`^disk-[0-9]{2}-`)

// diskName tells whether a disk of the request has this name.
func diskName(name, requestID string) bool {
	prefix := extraDisk.FindString(name)

	return name == requestID || prefix != "" && strings.TrimPrefix(name, prefix) == requestID
}
