package bugs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Verify checks a model in Promela with spin, which writes into the directory dir, and with
// a compiler. It returns "" for a model that holds, otherwise what the checker
// prints and the steps to the first error. With sampled, states are told apart by two bits in a
// table, which fills up. The depth is the longest way in steps; a model with a longer one is an
// error.
func Verify(dir string, model []byte, sampled bool, depth int, defines ...string) (trail string, err error) {
	if err := os.WriteFile(filepath.Join(dir, "m.pml"), model, 0o600); err != nil {
		return "", err
	}
	run := func(name string, args ...string) (out []byte, err error) {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		if out, err = cmd.CombinedOutput(); err != nil {
			err = fmt.Errorf("%s: %w: %s", name, err, out)
		}
		return out, err
	}
	search, table := []string{"-O2", "-w", "-DSAFETY", "-DNOFAIR"}, "-w24"
	if sampled {
		search, table = append(search, "-DBITSTATE"), "-w21"
	}
	if _, err := run("spin", append(defines[:len(defines):len(defines)], "-a", "m.pml")...); err != nil {
		return "", err
	}
	if _, err := run("cc", append(search, "-o", "pan", "pan.c")...); err != nil {
		return "", err
	}
	out, err := run("./pan", fmt.Sprint("-m", depth), table)
	switch {
	case err != nil:
		return "", err
	case !bytes.Contains(out, []byte("errors: ")) || bytes.Contains(out, []byte("max search depth too small")):
		return "", fmt.Errorf("not searched to the end: %s", out)
	case bytes.Contains(out, []byte("errors: 0")):
		return "", nil
	}
	steps, err := run("spin", append(defines[:len(defines):len(defines)], "-t", "-p", "m.pml")...)
	return fmt.Sprintf("%s\n%s", out, steps), err
}
