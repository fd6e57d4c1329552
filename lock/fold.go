package lock

import (
	"os"
	"path/filepath"
	"strings"
)

// SameFile reports whether the names of two texts differ at most in the case of
// their letters.
func SameFile(a, b string) bool {
	a, b = strings.ToLower(Name(a)), strings.ToLower(Name(b)) // ASCII by now
	return a == b
}

// FoldsCase reports whether the directory of the file at path, which is there and
// has a letter in its name, takes upper case and lower case for the same: as vfat,
// NTFS and APFS do, and ext4 for directories with the attribute F. It costs one
// system call where that is not so.
func FoldsCase(path string) bool {
	dir, name := filepath.Split(path)
	swapped := strings.ToUpper(name)
	if swapped == name {
		swapped = strings.ToLower(name)
	}
	other, err := os.Lstat(dir + swapped)
	if err != nil || swapped == name {
		return false
	}
	info, err := os.Lstat(path)
	return err == nil && os.SameFile(info, other)
}
