package machineclass

// GiB is the unit of all sizes in a class, in bytes.
const GiB = 1 << 30

// The rack's limits.
const (
	maxCPUs           = 254
	maxMemory         = 1536             // GiB
	maxDistributed    = 1023             // GiB
	maxLocal          = 10 * 1024 * 1024 // GiB; 10 PiB, what a rack ever accepts
	maxDisks          = 12 - 1           // the boot disk is the twelfth
	maxInterfaces     = 8
	maxExternalIPs    = 32
	maxEphemeralIPs   = 2 // one of each IP version
	maxGroups         = 16
	maxUserData       = 32 << 10 // bytes, before base64
	diskSerial        = 9        // characters of a disk's role that the guest sees
	maxDescription    = 120      // characters, beside our mark in the rack's 512
	maxInterfaceAddrs = 1024     // ours: what a list may have and still be read
	maxTransit        = 64       // ours
	maxFloatingIPs    = 1024     // ours
)

// MaxSetGroupMembers is the most members that an anti-affinity group of the
// rack has.
const MaxSetGroupMembers = 32

// Limits of Omni and of Kubernetes.
const (
	maxKernelArgs    = 64  // Omni's for a class' own kernel arguments
	maxKernelArg     = 256 // bytes, Omni's
	maxExtensions    = 64  // ours
	maxExtensionName = 128 // ours
	maxLabels        = 64  // ours
	maxLabelPrefix   = 253
	maxLabelName     = 63

	// joinConfig is room for Omni's join config in the user-data, in bytes. It
	// has about 580 with a short address.
	joinConfig = 1 << 10
)

// The values of fields that a class says nothing about.
const (
	defaultCPUs     = 1
	defaultMemory   = 4  // GiB
	defaultBootDisk = 10 // GiB
	defaultName     = "default"

	// Those of the published provider's first generation.
	oldDefaultCPUs   = 2
	oldDefaultMemory = 8 // GiB
)
