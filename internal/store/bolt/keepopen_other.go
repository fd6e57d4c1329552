//go:build !linux && !darwin && !freebsd && !netbsd && !dragonfly

package bolt

const canKeepOpen = false
