// Package lock takes kernel file locks. A lock belongs to an open descriptor
// and dies with it, so a killed process never leaves one behind; neither the
// existence of a lock file nor a pid means anything.
//
// The package is internal to this program and makes no promise to library
// users.
package lock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// ErrHeld is returned by the Try functions when another descriptor holds the
// lock in a way that excludes the one asked for.
var ErrHeld = errors.New("lock is held")

// Mode is how a lock is held.
type Mode int

const (
	Shared    Mode = iota // by any number of descriptors at once
	Exclusive             // by one
)

// File is a held lock. Close releases it, and so does the end of the last
// process that has the descriptor.
type File struct{ f *os.File }

// Open takes the lock on the file at path and waits for it until ctx ends; the
// error then wraps ctx.Err() and ErrHeld. A missing file is created with mode
// 0600; a symbolic link is not followed.
func Open(ctx context.Context, path string, m Mode) (*File, error) {
	return open(path, func(f *os.File) error { return Wait(ctx, f, m) })
}

// Try takes the lock on the file at path if that needs no waiting, and returns
// ErrHeld otherwise.
func Try(path string, m Mode) (*File, error) {
	return open(path, func(f *os.File) error { return TryFile(f, m) })
}

// open repeats until the locked file is the one that path names: run/ may be
// deleted at any time, and a lock on a deleted file excludes no process.
func open(path string, take func(*os.File) error) (*File, error) {
	for {
		f, err := Create(path, os.O_RDWR|NoFollow)
		if err != nil {
			return nil, err
		}
		if err := take(f); err != nil {
			f.Close()
			return nil, err
		}
		same, err := Names(path, f)
		if same {
			if err = Usable(f); err == nil {
				return &File{f}, nil
			}
		}
		f.Close()
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
}

// Usable gives the owner of an empty file the right to read and write it, which a
// umask can take away from a file that is being created. It refuses what is not a
// file: a writer to a named pipe would block.
func Usable(f *os.File) error {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		return &os.PathError{Op: "open", Path: f.Name(), Err: errors.New("not a regular file")}
	}
	if err != nil || info.Size() > 0 || info.Mode()&0o600 == 0o600 {
		return err
	}
	return f.Chmod(0o600)
}

// ErrNotKept is returned by Probe.
var ErrNotKept = errors.New("the file system does not keep locks")

// Probe reports whether a lock on the file at path, which this process holds
// exclusively, keeps others out: some network file systems accept every lock.
func (l *File) Probe(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|NoFollow, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	switch err := TryFile(f, Exclusive); {
	case errors.Is(err, ErrHeld):
		return nil
	case err != nil:
		return err
	}
	return ErrNotKept
}

// Names reports whether path is still the name of the open file f.
func Names(path string, f *os.File) (bool, error) {
	a, err := os.Lstat(path)
	if err != nil {
		return false, err
	}
	b, err := f.Stat()
	if err != nil {
		return false, err
	}
	return os.SameFile(a, b), nil
}

// FromFile wraps a descriptor that holds a lock already, such as one inherited
// from the parent process.
func FromFile(f *os.File) *File { return &File{f} }

// File returns the open file, to hand it down to a child process. The child
// then holds the same lock.
func (l *File) File() *os.File { return l.f }

// Close releases the lock unless another process has inherited it.
func (l *File) Close() error { return l.f.Close() }

// Wait takes the lock on f, waiting until ctx ends. The error then wraps
// ctx.Err() and ErrHeld, and f must be closed: the kernel's wait cannot be
// called off, so it continues next to the caller until the lock comes, and only
// the closed descriptor releases it at once.
func Wait(ctx context.Context, f *os.File, m Mode) error {
	if err := TryFile(f, m); !errors.Is(err, ErrHeld) {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrHeld, err)
	}
	got := make(chan error, 1)
	go func() { got <- control(f, func(fd uintptr) error { return wait(fd, m) }) }()
	select {
	case err := <-got:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrHeld, ctx.Err())
	}
}

// TryFile takes the lock on f or returns ErrHeld at once.
func TryFile(f *os.File, m Mode) error {
	return control(f, func(fd uintptr) error { return try(fd, m) })
}

// Unlock releases the lock on f before f is closed: a file that is still mapped
// keeps it beyond that.
func Unlock(f *os.File) error { return control(f, unlock) }

// control keeps f's descriptor from being closed and reused during fn.
func control(f *os.File, fn func(fd uintptr) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := conn.Control(func(fd uintptr) { err = fn(fd) }); cerr != nil {
		return cerr
	}
	return err
}

// maxNameBytes keeps an encoded name well below the 255 bytes of most file
// systems, with space for a suffix.
const maxNameBytes = 200

// Name returns a file name for any text: letters, digits, '-', '_' and '.' stay,
// other bytes and a leading '.' become %XX. A name that would be longer than
// 200 bytes is cut and ends in '%' and a hash of the whole text, which no
// shorter name can look like. Different texts have different names, but where a
// directory does not tell upper case from lower case (FoldsCase), those for which
// SameFile is true share a file.
func Name(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	if b.Len() <= maxNameBytes {
		return b.String()
	}
	sum := sha256.Sum256([]byte(text))
	return b.String()[:maxNameBytes-41] + "%" + hex.EncodeToString(sum[:20])
}

// ReadFile is os.ReadFile that follows no link and does not wait for who opens a named pipe
// to write.
func ReadFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|NoFollow|NoWait, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
