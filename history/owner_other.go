//go:build !unix

package history

import "thread/lock"

func makeDir(path, _ string) error { return lock.Mkdir(path) }

func (h *History) mayReplace() error { return nil }
