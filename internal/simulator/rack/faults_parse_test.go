package rack

import (
	"strings"
	"testing"
	"time"
)

// What is wrong with a rule is said in a line that names the field and what it
// holds.
func TestFaultsAreReadStrictly(t *testing.T) {
	for raw, want := range map[string]string{
		``:                        `is no JSON object`,
		`7`:                       `"7" is no JSON object`,
		`null`:                    `is no JSON object`,
		`{}`:                      `it must have one of action, condition and event`,
		`[{"action":"reset"},{}]`: `fault 2 of 2: it must have one of`,
		`{"action":"reset","event":"disk_faulted","disk":"d"}`:             `it must have one of`,
		`{"action":"explode"}`:                                             `action is "explode": it can be commit_late, delay,`,
		`{"condition":"bad"}`:                                              `condition is "bad": it can be api_too_old,`,
		`{"event":"bad"}`:                                                  `event is "bad": it can be disk_deleted,`,
		`{"action":"reset","operaton":"ping"}`:                             `unknown field "operaton"`,
		`{"Action":"reset"}`:                                               `unknown field "Action"`,
		`{"action":"reset","id":3}`:                                        `unknown field "id"`,
		`{"action":"reset","operation":"disk_craete"}`:                     `operation is "disk_craete": the rack has no such operation`,
		`{"action":"reset","method":"get"}`:                                `method is "get"`,
		`{"action":"reset","skip":"one"}`:                                  `skip is "one": its type is int`,
		`{"action":"reset","skip":-1}`:                                     `skip is -1`,
		`{"action":"reset","count":-1}`:                                    `count is -1`,
		`{"action":"reset","probability":1.5}`:                             `probability is 1.5`,
		`{"action":"reset","status":500}`:                                  `status is 500: reset has no such field`,
		`{"action":"error","status":200}`:                                  `status is 200: it must be within 400 and 599`,
		`{"action":"error","retry_after":"soon"}`:                          `retry_after is "soon"`,
		`{"action":"delay"}`:                                               `delay is missing: delay needs it`,
		`{"action":"delay","delay":"soon"}`:                                `delay is "soon": it must be a duration`,
		`{"action":"delay","delay":"-1s"}`:                                 `delay is -1s`,
		`{"action":"reset","from":"2s","until":"1s"}`:                      `until is 1s: it must be after from`,
		`{"action":"reset","since":"never"}`:                               `since is "never"`,
		`{"action":"lost_stop","operation":"ping"}`:                        `operation is "ping": lost_stop is for instance_stop`,
		`{"condition":"stuck","kind":"disk"}`:                              `state is missing`,
		`{"condition":"stuck","kind":"ship","state":"x"}`:                  `kind is "ship": it can be disk, instance, snapshot`,
		`{"condition":"stuck","kind":"disk","state":"ready"}`:              `state is "ready": a disk can be held in creating, finalizing`,
		`{"condition":"stuck","kind":"disk","state":"creating","count":1}`: `count is 1: stuck has no such field`,
		`{"condition":"pantry_unreachable"}`:                               `needs one of pantry and disk`,
		`{"event":"pantry_forgot","pantry":"a","disk":"b"}`:                `needs one of pantry and disk`,
		`{"condition":"role","token":"provider","role":"king"}`:            `role is "king"`,
		`{"condition":"quota"}`:                                            `quota needs cpus, memory or storage`,
		`{"condition":"api_too_old","version":"5"}`:                        `version is "5"`,
		`{"condition":"sled_unreachable","sled":"BRMA","status":500}`:      `status is 500: a sled`,
		`{"event":"project_renamed","project":"demo"}`:                     `to is missing`,
		`{"event":"project_renamed","project":"demo","to":"X"}`:            `to is "X"`,
		`{"event":"disk_faulted","disk":"d","count":2}`:                    `an event that waits for one needs operation`,
		`{"event":"disk_faulted","disk":"d","until":"1m"}`:                 `until is 1m0s: an event that waits for no call`,
	} {
		_, err := ParseFaults([]byte(raw))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %s", raw, err, want)
		}
	}

	got, err := ParseFaults([]byte(` [{"action":"error","status":503,"retry_after":"20","from":"1m","until":"2m","since":"start"},
		{"condition":"maintenance","sagas":"2m","away":"1m"}] `))
	if err != nil || len(got) != 2 || got[0].Until != Duration(2*time.Minute) || got[1].Away != Duration(time.Minute) {
		t.Errorf("%+v, %v", got, err)
	}
}

// Invariant: whatever is read as rules can be added, or is refused in a line;
// nothing panics.
func FuzzParseFaults(f *testing.F) {
	f.Add([]byte(`{"action":"error","status":503}`))
	f.Add([]byte(`[{"condition":"role","token":"a","role":"none"}]`))
	f.Add([]byte(`{"event":"disk_faulted","disk":"d","operation":"disk_view"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		rules, err := ParseFaults(raw)
		if err != nil {
			return
		}

		for _, r := range rules {
			if err := r.check(); err != nil {
				t.Errorf("%s was read, but: %v", raw, err)
			}
		}
	})
}
