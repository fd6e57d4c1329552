package watch

import (
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// Dirs watches any number of directories with one object of the kernel, of which
// a user may have only some hundred.
type Dirs struct{ w *fsnotify.Watcher }

// Notice says that a file in a watched directory was created or written.
type Notice struct {
	Dir, Name string
	Created   bool // or renamed to this name; else written
}

// NewDirs returns a watcher of no directory.
func NewDirs() (*Dirs, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return &Dirs{w}, nil
}

// Add watches dir too. It may be called again, also after the directory was
// replaced by another one of that name.
func (d *Dirs) Add(dir string) error { return d.w.Add(dir) }

// Remove ends the watching of dir.
func (d *Dirs) Remove(dir string) { _ = d.w.Remove(dir) } // an error says that it is gone already

// Next waits for a notice. ErrClosed says that there will be none any more; any
// other error that some were lost.
func (d *Dirs) Next() (Notice, error) {
	for {
		select {
		case e, ok := <-d.w.Events:
			if !ok {
				return Notice{}, ErrClosed
			}
			if e.Has(fsnotify.Create) || e.Has(fsnotify.Write) {
				return Notice{Dir: filepath.Dir(e.Name), Name: filepath.Base(e.Name), Created: e.Has(fsnotify.Create)}, nil
			}
		case err, ok := <-d.w.Errors:
			if !ok {
				return Notice{}, ErrClosed
			}
			return Notice{}, err
		}
	}
}

// Close ends the watching; Next returns ErrClosed.
func (d *Dirs) Close() error { return d.w.Close() }
