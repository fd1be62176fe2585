package naming

import (
	"regexp"
	"strconv"
	"strings"
)

const (
	// instanceHash is long enough (80 bits) that nobody finds two request
	// IDs with one name, not even on purpose.
	instanceHash = 16

	// diskHash is 50 bits, and tells apart the disks, or the groups, of one
	// project only.
	diskHash = 10
)

// MaxDiskRole is how many characters of a disk's role its name holds. A guest
// sees the first 20 bytes of the name as the serial number of its NVMe device:
// role, dash and hash must fit in them, so that a disk selector of Talos can
// match the serial with "<role>-*" and no two disks share one.
const MaxDiskRole = 9

var (
	legalName    = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)
	hashedName   = regexp.MustCompile(`-x[a-z2-7]{16}$`)
	uuidLike     = regexp.MustCompile(`^([0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$`)
	notInName    = regexp.MustCompile(`[^a-z0-9]+`)
	startsLetter = regexp.MustCompile(`^[a-z]`)
)

// Legal tells whether the rack accepts s as the name of an object: 1 to 63
// characters of [a-z0-9-], a letter first, no dash last, and nothing that it
// would read as an ID (a UUID, with or without dashes).
func Legal(s string) bool { return legalName.MatchString(s) && !uuidLike.MatchString(s) }

// Instance returns the name, which is also the hostname, of the instance of a
// machine request. A request ID that is legal stays as it is; any other
// becomes "<readable cut>-x<16 base32 characters of its hash>". An ID that
// already looks like that is hashed too, or it could be the name of another.
func Instance(requestID string) string {
	if Legal(requestID) && !hashedName.MatchString(requestID) {
		return requestID
	}

	suffix := "-x" + hashed(instanceHash, requestID)

	return readable(requestID, "m", maxName-len(suffix)) + suffix
}

// Disk returns the name of a disk of a machine request:
// "<role>-<10 base32 characters of the hash>-<readable cut of the ID>".
// The role (the disk's name in the class, or "boot", "data0" and so on) is cut
// to MaxDiskRole characters; what distinguishes the disk stands in the first
// 20, which the guest sees.
func Disk(role, requestID string) string {
	shown := role
	// One that fits stays as the class has it, so that a selector can name it.
	if !legalName.MatchString(role) || len(role) > MaxDiskRole {
		shown = readable(role, "d", MaxDiskRole)
	}

	head := shown + "-" + hashed(diskHash, role, requestID) + "-"

	return head + readable(requestID, "m", maxName-len(head))
}

// NIC returns the name of the network interface with the index, from 0, of
// an instance. Such names are unique within their instance only.
func NIC(index int) string { return "net" + strconv.Itoa(index) }

// SetGroup returns the name of an anti-affinity group that keeps machines of a
// machine request set apart: "<readable cut of the set>-<number>-x<10 base32
// characters of the hash>". The number is that of the group among those of the
// set with this policy, from 0. Owner and provider are in the hash: sets of two
// Omni accounts may have one ID.
func SetGroup(owner, provider, set, policy string, number uint32) string {
	n := strconv.FormatUint(uint64(number), 10)
	suffix := "-" + n + "-x" + hashed(diskHash, owner, provider, set, policy, n)

	return readable(set, "s", maxName-len(suffix)) + suffix
}

// FloatingIP returns the name of the floating address that is made for the
// entry with the index, from 0, of a machine request's external addresses:
// "ip<index>-<10 base32 characters of the hash>-<readable cut of the ID>".
func FloatingIP(index int, requestID string) string {
	role := "ip" + strconv.Itoa(index)
	head := role + "-" + hashed(diskHash, "floating address", role, requestID) + "-"

	return head + readable(requestID, "m", maxName-len(head))
}

// readable cuts s down to at most limit characters that may begin a name. It
// says something to people and guarantees nothing: distinct strings may give
// the same cut. When no letter comes first, the prefix does.
func readable(s, prefix string, limit int) string {
	s = strings.Trim(notInName.ReplaceAllString(strings.ToLower(s), "-"), "-")

	switch {
	case s == "":
		s = prefix
	case !startsLetter.MatchString(s):
		s = prefix + "-" + s
	}

	if len(s) > limit {
		s = s[:limit]
	}

	return strings.TrimRight(s, "-")
}
