//go:build !unix

package bolt

import "os"

func keepOwner(f *os.File, _ os.FileInfo) error { return f.Chmod(FileMode) }

func foreign(*os.File, os.FileInfo) bool { return false }
