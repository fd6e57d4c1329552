package store

import "path/filepath"

// Place is the directory of a thread on this host: run/ has its locks and what is
// under way, and may be deleted at any time, logs/ what people read. A store that
// is a directory is in the same one.
type Place struct {
	Dir string // absolute and clean
}

// The folders of a place.
const (
	RunName  = "run"
	LogsName = "logs"
)

// Path returns the path of something in the directory.
func (p Place) Path(elem ...string) string {
	if len(elem) == 1 { // which each transaction asks for
		return p.Dir + string(filepath.Separator) + elem[0]
	}
	return filepath.Join(append([]string{p.Dir}, elem...)...)
}
