package rack

import (
	"strings"
	"testing"
	"time"
)

// Each delay can be set by its name, and nothing else can.
func TestLatenciesAreSet(t *testing.T) {
	l := DefaultLatencies()

	for _, setting := range []string{"disk_create=2s", "external_ip=1m", "restart_cooldown=0s"} {
		must(0, l.Set(setting))(t)
	}

	if l.DiskCreate != 2*time.Second || l.ExternalIP != time.Minute || l.RestartCooldown != 0 || l.DiskDelete != DefaultLatencies().DiskDelete {
		t.Errorf("%+v", l)
	}

	for setting, want := range map[string]string{
		"disk=2s":         `"disk" is no delay: there are bulk_write, disk_create,`,
		"disk_create":     `disk_create is ""`,
		"disk_create=-1s": `disk_create is "-1s"`,
		"disk_create=x":   `disk_create is "x"`,
	} {
		if err := l.Set(setting); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", setting, err)
		}
	}
}
