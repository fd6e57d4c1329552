package thread_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestUnits: the packaged services run as a separate account, hardened so that
// systemd's own judgement is better than 4 of 10.
func TestUnits(t *testing.T) {
	units, err := filepath.Glob("packaging/systemd/system/*.service")
	if err != nil || len(units) != 5 {
		t.Fatal(units, err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "\nUser=thread\n") {
			t.Errorf("%s runs as root", unit)
		}
		if _, err := exec.LookPath("systemd-analyze"); err != nil {
			continue
		}
		// It looks for the program, too.
		copied := filepath.Join(t.TempDir(), filepath.Base(unit))
		if err := os.WriteFile(copied, []byte(strings.ReplaceAll(string(text), "/usr/bin/thread", "/bin/true")), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager", copied).CombinedOutput()
		found := regexp.MustCompile(`Overall exposure level for .*: ([0-9.]+) `).FindSubmatch(out)
		if err != nil || found == nil {
			t.Logf("systemd-analyze cannot tell: %v", err) // one of before --offline
			continue
		}
		if exposure, err := strconv.ParseFloat(string(found[1]), 64); err != nil || exposure >= 4 {
			t.Errorf("%s: exposure %s, %v", unit, found[1], err)
		}
	}
	for _, path := range []string{"packaging/openrc/thread-serve", "packaging/openrc/thread-serve.confd", "packaging/procd/thread-serve"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if regexp.MustCompile(`(?m)USER[:=-].*\broot\b`).Match(text) {
			t.Errorf("%s runs as root", path)
		}
	}
}

// TestMissingDirectory: a service whose directory is missing says so. systemd skips
// without a word what a Condition keeps from starting, and reports an Assert that fails.
func TestMissingDirectory(t *testing.T) {
	units, err := filepath.Glob("packaging/systemd/*/*.service")
	if err != nil || len(units) < 4 {
		t.Fatal(units, err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nConditionPath") {
			t.Errorf("%s is skipped without a word", unit)
		}
	}
	// The scripts for OpenWrt and OpenRC, with what rc.common and openrc-run have replaced
	// by what says that it was called.
	run := func(script, settings string) string {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		conf := filepath.Join(t.TempDir(), "thread.conf")
		if err := os.WriteFile(conf, []byte(settings), 0o600); err != nil {
			t.Fatal(err)
		}
		body := strings.ReplaceAll(string(text), "/etc/thread.conf", conf)
		cmd := exec.Command("sh", "-c", "logger() { shift 2; echo \"$*\"; }; procd_open_instance() { echo started; }; procd_set_param() { :; }; procd_close_instance() { :; }\n"+"su() { echo started; }; ebegin() { :; }; eerror() { echo \"$*\"; }; eend() { return $1; }\n"+
			body+"\nif type start_service >/dev/null 2>&1; then start_service; else . "+conf+"; start; fi")
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	for _, tt := range []struct{ script, settings, want string }{
		{"procd/thread-dispatch", "", "THREAD_DIRS is empty"},
		{"procd/thread-dispatch", "THREAD_DIRS=/nowhere/t", "/nowhere/t is no thread directory, is its partition mounted?"},
		{"procd/thread-serve", "", "THREAD_ROOT is empty"},
		{"openrc/thread-dispatch", "THREAD_DIRS=/nowhere/t", "/nowhere/t is no thread directory, is its partition mounted?"},
		{"procd/thread-serve", "THREAD_ROOT=/nowhere", "there is no directory /nowhere, is its partition mounted?"},
	} {
		if got := run("packaging/"+tt.script, tt.settings); !strings.Contains(got, tt.want) || strings.Contains(got, "started\n") {
			t.Errorf("%s with %q says %q, want %q", tt.script, tt.settings, got, tt.want)
		}
	}
}

// TestAccountOnOpenWrt: there BusyBox has neither adduser nor install, and the package
// makes the account with what base-files has for that; a second time, nothing.
func TestAccountOnOpenWrt(t *testing.T) {
	root := t.TempDir()
	text, err := os.ReadFile("packaging/account.sh")
	if err != nil {
		t.Fatal(err)
	}
	grep, err := exec.LookPath("grep")
	if err != nil {
		t.Skip("grep is not there")
	}
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("postinst", regexp.MustCompile(`/(etc|lib|var)/`).ReplaceAllString(string(text), root+"$0"))
	write("etc/openwrt_release", "")
	write("etc/passwd", "root:x:0:0:root:/root:/bin/ash\n")
	write("lib/functions.sh", "group_add_next() { echo 32768; }\nuser_add() { echo \"$1:x:$2:$3\" >>"+root+"/etc/passwd; }\n")
	write("bin/none", "")
	if err := os.Symlink(grep, filepath.Join(root, "bin/grep")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		cmd := exec.Command("/bin/sh", filepath.Join(root, "postinst"))
		cmd.Env = []string{"PATH=" + filepath.Join(root, "bin")}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
	passwd, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
	if err != nil || strings.Count(string(passwd), "\nthread:x::32768\n") != 1 || strings.Count(string(passwd), "thread") != 1 {
		t.Errorf("%q, %v", passwd, err)
	}
}
