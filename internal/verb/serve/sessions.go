package serve

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"thread/lock"
)

// keptFile keeps what outlasts the process.
type keptFile struct {
	path string // "" for nowhere
	log  *slog.Logger
	loss string // what happens after a restart when the file cannot be written
}

// kept returns the file of that name for an address.
func kept(name, address, ext, loss string, log *slog.Logger) *keptFile {
	return &keptFile{stateFile(name + "-" + lock.Name(address) + ext), log, loss}
}

// Load returns the content of the file, nil for nothing.
func (f *keptFile) Load() []byte {
	data, err := os.ReadFile(f.path)
	if err != nil {
		return nil // it is made again
	}
	return data
}

// Save replaces the file.
func (f *keptFile) Save(data []byte) {
	if f.path == "" {
		return
	}
	err := os.MkdirAll(filepath.Dir(f.path), 0o700)
	if err == nil {
		err = replaceFile(f.path, string(data), 0o600)
	}
	f.warn(err)
}

// Append adds a line to the file, with sync durably.
func (f *keptFile) Append(line []byte, sync bool) {
	if f.path == "" {
		return
	}
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		f.warn(err)
		return
	}
	_, err = file.Write(line)
	if err == nil && sync {
		err = file.Sync()
	}
	f.warn(errors.Join(err, file.Close()))
}

func (f *keptFile) warn(err error) {
	if err != nil {
		f.log.Warn(f.loss, "error", err)
	}
}

// stateFile returns the path of a file of this account that outlasts the process: below
// the directory of the service, or XDG_STATE_HOME, or ~/.local/state; "" without any.
func stateFile(name string) string {
	if dir := os.Getenv("STATE_DIRECTORY"); dir != "" {
		return filepath.Join(filepath.SplitList(dir)[0], name)
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "thread", name)
	}
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return ""
	}
	return filepath.Join(home, ".local", "state", "thread", name)
}
