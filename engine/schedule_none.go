//go:build noserve

package engine

// A build for the smallest hosts leaves what is scheduled alone: it is shown and
// kept, and a full build attends to it.
const releases = false

func (*Tx) release() (string, bool, error) { return "", false, nil }

func (*checker) scheduled(*element) {}
func (*checker) schedule(*element)  {}
func (*checker) orphanEntries()     {}

func (*salvage) soundSchedules() {}
