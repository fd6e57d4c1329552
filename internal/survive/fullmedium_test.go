//go:build linux

package survive

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRunsWithoutRoom: handlers are run and their events acked where their runs, or the
// history, are on a medium that is full or read-only. What could be left waits, and is
// taken when there is a history again.
func TestRunsWithoutRoom(t *testing.T) {
	if out, err := exec.Command("unshare", "-m", "mount", "-t", "tmpfs", "none", t.TempDir()).CombinedOutput(); err != nil {
		t.Skipf("nothing can be mounted: %v %s", err, out)
	}
	for _, tt := range []struct {
		name, mount string
		left        bool // the runs wait
	}{
		{"runs full", `mount -t tmpfs -o size=4k none "$D/logs/runs"; head -c 100000 /dev/zero >"$D/logs/runs/fill" || true`, false},
		{"runs read-only", `mount -t tmpfs -o ro none "$D/logs/runs"`, false},
		{"history full", `mount -t tmpfs -o size=4k none "$D/history"; head -c 100000 /dev/zero >"$D/history/fill" || true`, true},
		{"history read-only", `mount -t tmpfs -o ro none "$D/history"`, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "an inbox")
			thread(t, "", "init", dir)
			thread(t, "", "subscribe", "--thread", dir, "--consumer", "c", "--handler",
				`n=$("$T" pop --consumer c --last-event-id "$THREAD_LAST_ACKED_ID" --limit 1 | sed 's/^{"id":\([0-9]*\).*/\1/'); "$T" ack --consumer c --event-id "$n"; echo "$n" >>"$D.handled"; test "$n" -ne 1`)
			cmd := exec.Command("unshare", "-m", "sh", "-ec", `mkdir -p "$D/logs/runs" "$D/history"
`+tt.mount+`
for n in 1 2 3; do
	"$T" push --thread "$D" --source s --type m --content "$n" >/dev/null
	i=0
	until grep -qx "$n" "$D.handled" 2>/dev/null || [ $i -ge 3000 ]; do i=$((i+1)); sleep 0.01; done
	grep -qx "$n" "$D.handled"
done
i=0
while "$T" runs --thread "$D" 2>/dev/null | grep -q running && [ $i -lt 1000 ]; do i=$((i+1)); sleep 0.01; done
ls "$D/logs/runs"`)
			cmd.Env = append(os.Environ(), "D="+dir, "T="+program, "THREAD_DIR="+dir, "THREAD_DISPATCH=spawn")
			out, err := cmd.CombinedOutput()
			text, _ := os.ReadFile(filepath.Join(dir, "logs", "thread.log"))
			if err != nil {
				t.Fatalf("%v: %s\n%s", err, out, text)
			}
			awaitNobody(t, dir)
			if r := run(t, "", program, "info", "--thread", dir); !strings.Contains(r.stdout, "last_acked_id: 3") {
				t.Errorf("it is not all acked: %v", r)
			}
			if tt.left {
				thread(t, "", "history", "take", "--thread", dir)
				r := run(t, "", program, "runs", "--thread", dir, "--all")
				for n := range 3 {
					if !strings.Contains(r.stdout, fmt.Sprintf("event %d ", n+1)) {
						t.Errorf("the run of event %d is not recorded: %v\n%s", n+1, r, text)
					}
				}
			} else if !strings.Contains(string(text), "is not recorded: ") {
				t.Errorf("nothing is said of runs that are not recorded:\n%s", text)
			}
		})
	}
}

// awaitNobody waits until no process works on the directory any more.
func awaitNobody(t *testing.T, dir string) {
	t.Helper()
	if err := awaitAll("D="+dir, handlersLimit); err != nil {
		t.Fatal(err)
	}
}
