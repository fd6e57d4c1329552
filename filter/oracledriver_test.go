//go:build !nooracle

package filter

// Without it, for other processors on which it takes minutes to build and to run,
// what needs the oracle is skipped.
import _ "modernc.org/sqlite"
