package cli

import "thread/internal/programs"

// ShellWord is [programs.ShellWord].
func ShellWord(s string) string { return programs.ShellWord(s) }
