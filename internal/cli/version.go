package cli

import "runtime/debug"

// stamped is the version that a published build is given by the linker.
var stamped string

// devel is the version of a build that has none: clients look for three numbers.
const devel = "0.0.0-devel"

// Version returns the version that was stamped, else the module's, or for a build
// from a checkout devel, with the revision it was built from where that is known.
func Version() string {
	if stamped != "" {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return devel
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, modified := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = "+" + s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = ".changes"
		}
	}
	if revision == "" {
		return devel
	}
	return devel + revision + modified
}
