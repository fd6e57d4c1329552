package cli

import (
	"os"
	"path/filepath"
	"strings"
)

// completeEntries bounds how much of a directory is looked at for candidates.
const completeEntries = 4096

// candidate is a word that can stand where the cursor is. One that ends in a
// slash can be completed further.
type candidate struct{ word, help string }

// directories returns the threads, and with a slash the other directories, whose
// path may begin with cur. They are spelled as cur is: relative, with ~/ or in
// full. Hidden ones are offered once their dot is typed.
func directories(cur string) []candidate {
	typed, begin := filepath.Split(cur)
	where := "."
	if typed != "" {
		var err error
		if where, err = Resolve(typed); err != nil {
			return nil
		}
	}
	f, err := os.Open(where)
	if err != nil {
		return nil
	}
	defer f.Close()
	entries, _ := f.ReadDir(completeEntries) // what could be read is better than nothing
	var found []candidate
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, begin) || strings.HasPrefix(name, ".") && begin == "" {
			continue
		}
		path := filepath.Join(where, name)
		if st, err := os.Stat(path); err != nil || !st.IsDir() { // through links
			continue
		}
		if IsThread(path) {
			found = append(found, candidate{typed + name, "thread"})
		} else {
			found = append(found, candidate{typed + name + "/", "directory"})
		}
	}
	return found
}
