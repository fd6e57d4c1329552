package cli

import (
	"os/exec"
	"strings"
	"testing"
)

// TestShellWord lets a shell read the words back.
func TestShellWord(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no sh")
	}
	for _, s := range []string{"", "plain/path-1.2", "two words", "it's", `"q" $HOME $(id) \`, "a;b&c|d<e>f", "*?[x]", "~/x", "#no", "grün", "a\nb"} {
		out, err := exec.Command("sh", "-c", "printf %s "+ShellWord(s)).Output()
		if err != nil || string(out) != s {
			t.Errorf("sh reads shellWord(%q) = %s as %q (%v)", s, ShellWord(s), out, err)
		}
	}
	if got := ShellWord("plain/path-1.2"); strings.Contains(got, "'") {
		t.Errorf("a plain path is quoted: %s", got)
	}
}

func TestNumbers(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want int64
		ok   bool
	}{
		{"0", 0, true}, {"007", 7, true}, {" 3 ", 3, true}, {"+3", 3, true}, {" +3", 3, true},
		{"9223372036854775807", 1<<63 - 1, true}, {"9223372036854775808", 0, false},
		{"", 0, false}, {" ", 0, false}, {"+", 0, false}, {"-1", 0, false}, {"-0", 0, false}, {"+-1", 0, false}, {"++1", 0, false},
		{"+ 1", 0, false}, {"2abc", 0, false}, {"2.9", 0, false}, {"0x10", 0, false}, {"1_000", 0, false}, {"1e3", 0, false}, {"٣", 0, false},
	} {
		if got, ok := ParseNumber(tt.in); ok != tt.ok || ok && got != tt.want {
			t.Errorf("parseNumber(%q) = %d, %v", tt.in, got, ok)
		}
	}
}
