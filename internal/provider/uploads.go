package provider

const (
	// baseMemory is what the process takes without an upload, uploadMemory what
	// each adds: its buffers and the window of its decoder.
	baseMemory   = 24 << 20
	uploadMemory = 25 << 20
)

// uploadsWithin is how many uploads a memory limit in bytes has room for, at
// least one and no more than most.
func uploadsWithin(limit int64, most int) int {
	if most <= 0 {
		most = 4
	}

	return int(max(min((limit-baseMemory)/uploadMemory, int64(most)), 1))
}
