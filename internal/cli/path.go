package cli

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Resolve returns the absolute form of a directory given by a user: relative to
// the working directory, cleaned, without a trailing slash, ~ and a leading ~/ being
// the home directory. Symbolic links are kept, so the result names the thread as
// the user does (T-09).
func Resolve(dir string) (string, error) {
	if isAddress(dir) {
		return "", UsageError("the directory has the form of an address, and addresses have one form only",
			"give postgres://[user@]host[:port]/database?thread=NAME without a password, or put ./ before the name of a directory")
	}
	dir, err := expandHome(dir)
	if err != nil {
		return "", err
	}
	abs, err := filepath.Abs(dir)
	if errors.Is(err, os.ErrNotExist) {
		return "", LogicError("the working directory does not exist any more", "change to another, or name the directory in full")
	}
	return abs, err
}

// isAddress reports whether a text that is not a URL of [IsURL] is meant as the address of a
// database: a URL of another scheme, user:password@host, or host=HOST password=PASSWORD.
// As a directory it would be printed in every error, with its password. A path that exists,
// or that begins as one, is a path.
func isAddress(s string) bool {
	for _, prefix := range []string{"/", "./", "../", "~/", `.\`, `\`} {
		if strings.HasPrefix(s, prefix) {
			return false
		}
	}
	// regexp costs time to compile: most names are decided without.
	if !strings.ContainsAny(s, ":=@") && !strings.HasPrefix(s, "postgres") {
		return false
	}
	if !regexp.MustCompile(`(?i)^[\s"'<]*[a-z][a-z0-9+.:-]+:/|^[\s"'<]*postgres(ql)?:?/|^[\s"'<]*postgres(ql)?:|^[^/]*:[^/]*@|` +
		`(^|[\s"'?&;])(host|hostaddr|dbname|user|service|pass\w*)\s*=`).MatchString(s) {
		return false
	}
	_, err := os.Lstat(s)
	return err != nil
}

// expandHome replaces ~ and a leading ~/ by the home directory.
func expandHome(dir string) (string, error) {
	rest, ok := strings.CutPrefix(dir, "~")
	if !ok || rest != "" && rest[0] != '/' {
		return dir, nil
	}
	home := os.Getenv("HOME")
	if home == "" {
		return "", UsageError("cannot expand "+dir+": HOME is not set", "name the directory in full")
	}
	return filepath.Join(home, rest), nil
}
