// Package guest is a simulated Talos machine: what an Oxide instance boots.
//
// It reads the image on its boot disk and the config disk that the rack made,
// by the rules of the Talos version that the image holds, and joins Omni with
// the real SideroLink call. The tunnel and the Talos API behind it are played
// by package link.
//
//	          +--------------------------- reset with reboot ---+
//	          v                                                 |
//	power on: firmware -> config -> provision -> link: maintenance -> running
//	             |           |          ^            |                  |
//	             |           |          +- broken ---+------------------+
//	             v           v                       |
//	           failed     idle, never joins          +-> reset: power off
//
// The rules of versions: before 1.12.0 Talos does not find so small a FAT
// volume; 1.12.0 to 1.12.2 find it and fail to mount it; from 1.12.0-beta.0 on
// the platform is published although Oxide offers no network-config.
package guest

import (
	"context"
	"io"
	"time"

	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/talosimage"
)

// Hardware is what the guest finds when it is switched on.
type Hardware struct {
	// UUID is the system UUID as the guest reads it from SMBIOS.
	UUID string
	// CIData is the whole config disk, a FAT12 volume.
	CIData []byte
	// BootDisk is the disk to boot from, of BootDiskSize bytes.
	BootDisk     io.ReaderAt
	BootDiskSize int64
	// Store is what the guest keeps on its boot disk. It must be made with the
	// disk and outlive the guest.
	Store *Store
	// Hostname is what DHCP offers; it may be empty.
	Hostname string
	// Addresses are the guest's own.
	Addresses []string
	// NoPlatform makes any version publish no platform.
	NoPlatform bool
	// TimeScale multiplies the guest's delays; zero means 1.
	TimeScale float64
}

// Exit says how a guest ended.
type Exit int

// The ends of a guest.
const (
	// ExitPowerOff: the guest halted itself.
	ExitPowerOff Exit = iota
	// ExitStopped: the context ended, as if the power was cut.
	ExitStopped
	// ExitFailed: there is nothing bootable on the disk.
	ExitFailed
)

// Delays at time scale 1.
const (
	bootTime   = 2 * time.Second
	wipeTime   = time.Second
	retryFirst = 500 * time.Millisecond
	retryLast  = 15 * time.Second
)

// samplePieces is how sparsely the disk's content is compared at boot: one piece
// of 64 KiB in so many. A disk that was written wrongly does not boot.
const samplePieces = 61

// machine is one guest from power-on to its end.
type machine struct {
	hw  Hardware
	log *zap.Logger
}

// power is what comes after a boot.
type power int

const (
	powerKeep power = iota // the context ended
	powerReboot
	powerOff
	powerNothing // nothing bootable
)

// Run is the guest's whole life: it boots and reboots until it halts, ctx ends,
// or it finds nothing to boot. A guest that can not join tries for ever.
func Run(ctx context.Context, hw Hardware, log *zap.Logger) Exit {
	if hw.Store == nil {
		hw.Store = NewStore()
	}

	if hw.TimeScale == 0 {
		hw.TimeScale = 1
	}

	m := &machine{hw: hw, log: log}

	for {
		switch m.boot(ctx) {
		case powerReboot:
			log.Debug("rebooting")
		case powerOff:
			return ExitPowerOff
		case powerNothing:
			return ExitFailed
		case powerKeep:
			return ExitStopped
		}
	}
}

// boot goes from the firmware to the end of this boot.
func (m *machine) boot(ctx context.Context) power {
	if !m.pause(ctx, bootTime) {
		return powerKeep
	}

	image, err := m.firmware()
	if err != nil {
		m.log.Warn("nothing to boot", zap.Error(err))

		return powerNothing
	}

	s, err := m.start(image)
	if err != nil {
		// Talos tries the same again and again; nothing will change.
		m.log.Warn("the machine can not read its config and will not join", zap.String("talos.version", image.Talos), zap.Error(err))
	}

	if s == nil {
		<-ctx.Done()

		return powerKeep
	}

	return s.run(ctx)
}

// firmware looks for an image on the boot disk.
func (m *machine) firmware() (talosimage.Descriptor, error) {
	if m.hw.BootDisk == nil {
		return talosimage.Descriptor{}, errNoDisk
	}

	image, err := talosimage.Verify(m.hw.BootDisk, m.hw.BootDiskSize, samplePieces)
	if err != nil {
		return image, err
	}

	if image.Arch != "amd64" {
		return image, errArch
	}

	return image, nil
}

// pause waits for d at the machine's time scale. It returns false if ctx ended.
func (m *machine) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(time.Duration(float64(d) * m.hw.TimeScale))
	defer timer.Stop()

	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
