package uitest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mcpSDK is the version of the official TypeScript client (MIT), which npm installs once
// into the user's cache.
const mcpSDK = "1.32.2"

// TestMCPTypeScript plays the day of an agent with that client against thread mcp.
func TestMCPTypeScript(t *testing.T) {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatal(err)
			}
			t.Skip(program + " is not there")
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	at := filepath.Join(cache, "thread-uitest", "mcp-"+mcpSDK)
	if _, err := os.Stat(filepath.Join(at, "installed")); err != nil {
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		npm := exec.Command("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", at, "@modelcontextprotocol/sdk@"+mcpSDK)
		if out, err := npm.CombinedOutput(); err != nil {
			t.Fatalf("npm install: %v\n%s", err, out)
		}
		if err := os.WriteFile(filepath.Join(at, "installed"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// Modules are looked up from where the script is.
	script, err := os.ReadFile("testdata/day.mjs")
	if err == nil {
		err = os.WriteFile(filepath.Join(at, "day.mjs"), script, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "inbox")
	thread := filepath.Join(bin, "thread")
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	for _, args := range [][]string{{"init", dir}, {"subscribe", "--thread", dir, "--consumer", "agent", "--pull", "--filter", "type = 'question'"}} {
		if out, err := exec.Command(thread, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	day := exec.CommandContext(t.Context(), "node", "day.mjs", thread, dir)
	day.Dir = at
	if out, err := day.CombinedOutput(); err != nil || !strings.Contains(string(out), "done") {
		t.Errorf("%v\n%s", err, out)
	}
}
