//go:build planted

package planted

import "os"

var name = os.Getenv("THREAD_PLANT")

// Bug reports whether the bug of that name is planted, by THREAD_PLANT.
func Bug(bug string) bool { return bug == name }
