package cli

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDiscoverPassesOverOthers: who can write to a directory above must not
// choose where our events go.
func TestDiscoverPassesOverOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	ours := t.TempDir()
	theirs := filepath.Join(ours, "theirs")
	here := filepath.Join(theirs, "here")
	if err := os.MkdirAll(here, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{ours, theirs} {
		if err := os.WriteFile(filepath.Join(dir, "events.db"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(here)
	if got := discover(); got != theirs {
		t.Fatalf("discover() = %q, want %q", got, theirs)
	}
	if err := os.Chown(theirs, 12345, 12345); err != nil {
		t.Skip("chown: ", err)
	}
	if got := discover(); got != ours {
		t.Errorf("discover() = %q, want %q, the thread of this user", got, ours)
	}
}
