package guest_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/guest"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/link"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/talosimage"
)

// machineConfig is a complete config that also keeps the join documents.
func machineConfig(t *testing.T, o *omni, extra string) string {
	t.Helper()

	input, err := generate.NewInput("c", "https://127.0.0.1:6443", "1.34.2")
	if err != nil {
		t.Fatal(err)
	}

	c, err := input.Config(machine.TypeWorker)
	if err != nil {
		t.Fatal(err)
	}

	text, err := c.EncodeString()
	if err != nil {
		t.Fatal(err)
	}

	// Replaced, not merged: the generated one is auto: stable.
	if before, _, found := strings.Cut(text, "---\napiVersion: v1alpha1\nkind: HostnameConfig"); found && strings.Contains(extra, "HostnameConfig") {
		text = before
	}

	return text + "\n---\n" + o.joinConfig() + extra
}

func TestAMachineJoinsFromItsConfigDisk(t *testing.T) {
	o := newOmni(t)
	cut, _ := boot(t, hardware(t, "1.13.5", o.joinConfig()))

	conn, hello := o.accept()

	if hello.UUID != "74c39ec9-edb1-4af7-8000-000000000001" || hello.TalosVersion != "v1.13.5" || hello.Schematic != "5c4e" || hello.Arch != "amd64" ||
		hello.Stage != link.StageMaintenance || hello.Hostname != "node-a" || hello.Platform != "nocloud" || len(hello.Addresses) != 1 {
		t.Fatalf("%+v", hello)
	}

	request := o.calls()[0]
	if request.GetNodeUuid() != hello.UUID || request.GetNodePublicKey() != hello.NodePublicKey || request.GetJoinToken() != "v2:secret=" ||
		request.GetNodeUniqueToken() == "" || request.GetTalosVersion() != "v1.13.5" || !request.GetWireguardOverGrpc() {
		t.Fatalf("%+v", request)
	}

	if text, _ := o.do(conn, link.Command{Number: 1, Verb: link.VerbPing}); text != "" {
		t.Fatal(text)
	}

	if text, _ := o.do(conn, link.Command{Number: 2, Verb: "dance"}); text == "" {
		t.Fatal("an unknown command passed")
	}

	if exit := cut(); exit != guest.ExitStopped {
		t.Fatal(exit)
	}
}

// A machine's whole life: config, power cut, reset into maintenance, farewell.
func TestConfigSurvivesPowerCutsAndNoReset(t *testing.T) {
	o := newOmni(t)
	hw := hardware(t, "1.13.5", o.joinConfig())
	cut, _ := boot(t, hw)
	conn, _ := o.accept()

	for _, bad := range []string{"kind: nonsense", "machine: {nonsense: 1}", "", o.joinConfig()} {
		if text, _ := o.do(conn, link.Command{Number: 1, Verb: link.VerbApplyConfig, Config: bad}); text == "" {
			t.Fatalf("config %q passed", bad)
		}
	}

	full := machineConfig(t, o, "---\napiVersion: v1alpha1\nkind: HostnameConfig\nhostname: chosen\nauto: off\n")
	if text, _ := o.do(conn, link.Command{Number: 2, Verb: link.VerbApplyConfig, Config: full}); text != "" {
		t.Fatal(text)
	}

	if message, err := conn.Receive(); err != nil || message.Event == nil || message.Event.Stage != link.StageRunning || message.Event.Hostname != "chosen" {
		t.Fatalf("%+v, %v", message.Event, err)
	}

	cut()

	_, exit := boot(t, hw)

	conn, hello := o.accept()
	if hello.Stage != link.StageRunning || hello.Hostname != "chosen" {
		t.Fatalf("%+v", hello)
	}

	text, events := o.do(conn, link.Command{Number: 3, Verb: link.VerbReset, Reboot: true})
	if text != "" || len(events) != 1 || events[0].Stage != link.StageResetting {
		t.Fatal(text, events)
	}

	if _, err := conn.Receive(); err == nil {
		t.Fatal("the link outlived the reset")
	}

	conn, hello = o.accept()
	if hello.Stage != link.StageMaintenance || hello.Hostname != "node-a" || hw.Store.Config() != nil {
		t.Fatalf("%+v", hello)
	}

	requests := o.calls()
	if len(requests) != 3 || requests[0].GetNodeUniqueToken() != requests[2].GetNodeUniqueToken() || requests[1].GetNodePublicKey() == requests[2].GetNodePublicKey() {
		t.Fatal("each boot has its own key and all the same token:", requests)
	}

	if text, _ := o.do(conn, link.Command{Number: 4, Verb: link.VerbReset}); text != "" {
		t.Fatal(text)
	}

	if got := <-exit; got != guest.ExitPowerOff {
		t.Fatal(got)
	}
}

func TestABrokenLinkIsMadeAgain(t *testing.T) {
	o := newOmni(t)
	boot(t, hardware(t, "1.13.5", o.joinConfig()))

	conn, first := o.accept()
	conn.Close()

	if _, second := o.accept(); second.NodePublicKey != first.NodePublicKey {
		t.Fatal("the key changed without a reboot")
	}
}

func TestARefusedMachineTriesAgain(t *testing.T) {
	o := newOmni(t)
	o.setRefusal(status.Error(codes.PermissionDenied, "unauthorized"))
	boot(t, hardware(t, "1.13.5", o.joinConfig()))

	deadline := time.Now().Add(patience)
	for len(o.calls()) < 3 {
		if time.Now().After(deadline) {
			t.Fatal("it gave up after", len(o.calls()))
		}

		<-time.After(time.Millisecond)
	}

	o.setRefusal(nil)
	o.accept()
}

// What Talos makes of its config disk, by version and content.
func TestRulesForTheConfigDisk(t *testing.T) {
	var packed bytes.Buffer

	o := newOmni(t)
	join := o.joinConfig()
	zip := gzip.NewWriter(&packed)

	if _, err := io.WriteString(zip, join); err != nil {
		t.Fatal(err)
	}

	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}

	padded := volume("cidata", "user-data", []byte(join+strings.Repeat("#", 34<<10)))

	for name, test := range map[string]struct {
		talos    string
		disk     []byte
		change   func(*guest.Hardware)
		joins    bool
		platform string
	}{
		"1.13.5":                 {talos: "1.13.5", disk: cidata(join), joins: true, platform: "nocloud"},
		"1.12.3":                 {talos: "1.12.3", disk: cidata(join), joins: true, platform: "nocloud"},
		"1.14.0-rc.1":            {talos: "1.14.0-rc.1", disk: cidata(join), joins: true, platform: "nocloud"},
		"1.12.2 can not mount":   {talos: "1.12.2", disk: cidata(join)},
		"1.12.0 can not mount":   {talos: "1.12.0", disk: cidata(join)},
		"1.12.0-alpha.2":         {talos: "1.12.0-alpha.2", disk: cidata(join)},
		"1.12.3-beta.1":          {talos: "1.12.3-beta.1", disk: cidata(join)},
		"1.11.5 finds no volume": {talos: "1.11.5", disk: cidata(join)},
		"1.11.5 with padding":    {talos: "1.11.5", disk: padded, joins: true},
		"no platform when told":  {talos: "1.13.5", disk: cidata(join), change: func(h *guest.Hardware) { h.NoPlatform = true }, joins: true},
		"gzip":                   {talos: "1.13.5", disk: cidata(packed.String()), joins: true, platform: "nocloud"},
		"label in upper case":    {talos: "1.13.5", disk: volume("CIDATA", "user-data", []byte(join)), joins: true, platform: "nocloud"},
		"another label":          {talos: "1.13.5", disk: volume("config-2", "user-data", []byte(join))},
		"no user-data":           {talos: "1.13.5", disk: volume("cidata", "other", []byte(join))},
		"empty user-data":        {talos: "1.13.5", disk: cidata("")},
		"#cloud-config":          {talos: "1.13.5", disk: cidata("#cloud-config\n" + join)},
		"#include":               {talos: "1.13.5", disk: cidata("#include\nhttp://192.0.2.1/\n")},
		"unknown kind":           {talos: "1.13.5", disk: cidata(join + "---\napiVersion: v1alpha1\nkind: Unknown\n")},
		"unknown field":          {talos: "1.13.5", disk: cidata(strings.Replace(join, "apiUrl", "apiURL", 1))},
		"something before it":    {talos: "1.13.5", disk: cidata("hello\n---\n" + join)},
		"mime":                   {talos: "1.13.5", disk: cidata("Content-Type: multipart/mixed; boundary=x\n\n--x\n" + join)},
		"no FAT":                 {talos: "1.13.5", disk: make([]byte, 8192)},
		"token in the kernel args": {
			talos: "1.13.5", disk: cidata(""), joins: true, platform: "nocloud",
			change: func(h *guest.Hardware) {
				img := disk(t, "1.13.5", func(d *talosimage.Descriptor) {
					d.KernelArgs = []string{"quiet", "siderolink.api=grpc://" + o.api + "?jointoken=x"}
				})
				h.BootDisk, h.BootDiskSize = img, img.Size()
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			hw := hardware(t, test.talos, "")
			hw.CIData = test.disk

			if test.change != nil {
				test.change(&hw)
			}

			before := len(o.calls())
			cut, ended := boot(t, hw)

			if test.joins {
				if _, hello := o.accept(); hello.Platform != test.platform {
					t.Errorf("platform %q", hello.Platform)
				}
			} else {
				// Long after it would have joined, it neither has nor has ended.
				select {
				case exit := <-ended:
					t.Fatal("it ended:", exit)
				case <-time.After(100 * time.Millisecond):
				}

				if len(o.calls()) != before {
					t.Error("it joined")
				}
			}

			if exit := cut(); exit != guest.ExitStopped {
				t.Error(exit)
			}
		})
	}
}

func TestNothingToBoot(t *testing.T) {
	good := hardware(t, "1.13.5", "")

	whole, err := io.ReadAll(io.NewSectionReader(good.BootDisk, 0, good.BootDiskSize-4096))
	if err != nil {
		t.Fatal(err)
	}

	blank := hardware(t, "1.13.5", "")
	blank.BootDisk, blank.BootDiskSize = bytes.NewReader(make([]byte, 2<<20)), 2<<20

	none := hardware(t, "1.13.5", "")
	none.BootDisk = nil

	arm := hardware(t, "1.13.5", "")
	arm.BootDisk = disk(t, "1.13.5", func(d *talosimage.Descriptor) { d.Arch = "arm64" })

	cut := hardware(t, "1.13.5", "")
	cut.BootDisk, cut.BootDiskSize = bytes.NewReader(whole[:1<<20]), 1<<20

	for name, hw := range map[string]guest.Hardware{"blank": blank, "no disk": none, "arm64": arm, "cut": cut} {
		_, ended := boot(t, hw)

		if exit := <-ended; exit != guest.ExitFailed {
			t.Errorf("%s: %d", name, exit)
		}
	}
}
