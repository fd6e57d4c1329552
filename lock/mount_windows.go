package lock

import (
	"path/filepath"

	"golang.org/x/sys/windows"
)

func mountKind(path string) string {
	volume := filepath.VolumeName(path)
	if volume == "" {
		return ""
	}
	root, err := windows.UTF16PtrFromString(volume + `\`)
	if err == nil && windows.GetDriveType(root) == windows.DRIVE_REMOTE {
		return "a network drive"
	}
	return ""
}
