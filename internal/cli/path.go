package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// Resolve returns the absolute form of a directory given by a user: relative to
// the working directory, cleaned, without a trailing slash, a leading ~/ being
// the home directory. Symbolic links are kept, so the result names the thread as
// the user does (T-09).
func Resolve(dir string) (string, error) {
	if rest, ok := strings.CutPrefix(dir, "~/"); ok {
		home := os.Getenv("HOME")
		if home == "" {
			return "", UsageError("cannot expand "+dir+": HOME is not set", "name the directory in full")
		}
		dir = filepath.Join(home, rest)
	}
	abs, err := filepath.Abs(dir)
	if errors.Is(err, os.ErrNotExist) {
		return "", LogicError("the working directory does not exist any more", "change to another, or name the directory in full")
	}
	return abs, err
}
