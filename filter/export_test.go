//go:build !lite

package filter

// OnCompile calls hook before each compilation of a program, until the returned function
// is called.
func OnCompile(hook func()) (restore func()) {
	old := compiling
	compiling = hook
	return func() { compiling = old }
}
