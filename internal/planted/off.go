//go:build !planted

package planted

// Bug reports whether the bug of that name is planted: never.
func Bug(string) bool { return false }
