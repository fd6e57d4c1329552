package cli

import (
	"os"
	"path/filepath"
)

// envDir names the environment variable that stands in for --thread. Handlers
// find their own thread in it.
const envDir = "THREAD_DIR"

// takesThread is a grammar with the flag --thread.
type takesThread interface{ threadFlag() *Text }

func (f *ThreadFlags) threadFlag() *Text { return &f.Thread }

// UseDefaultDir fills in a --thread that was not given: THREAD_DIR if that is
// set, else the nearest thread from the working directory upwards. A flag that
// was given always counts, also when it is wrong.
func UseDefaultDir(flag *Text) error {
	if flag.Set {
		return nil
	}
	flag.Value = os.Getenv(envDir)
	if flag.Value == "" {
		flag.Value = discover()
	}
	if flag.Value == "" {
		return UsageError("missing flag --thread", "add it, set "+envDir+", or change into a thread directory")
	}
	return nil
}

// discover returns the working directory or the nearest one above it that is a
// thread of this user, "" when there is none. The threads of other users are
// passed over, as git does: otherwise whoever can write to a directory above,
// such as /tmp, would choose where events go.
func discover() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	for {
		if IsThread(dir) && isOwn(dir) {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

// IsThread reports whether dir has the file by which clients know a thread
// (T-16). Whether the file is sound is for opening it to say.
func IsThread(dir string) bool {
	st, err := os.Lstat(filepath.Join(dir, "events.db"))
	return err == nil && st.Mode().IsRegular()
}
