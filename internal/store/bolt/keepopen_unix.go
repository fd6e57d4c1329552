//go:build linux || darwin || freebsd || netbsd || dragonfly

package bolt

// canKeepOpen: a mapping shows what others write to the file, an open file can be
// replaced, and the lock of an open file can be given back.
const canKeepOpen = true
