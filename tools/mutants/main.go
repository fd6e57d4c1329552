// Command mutants tests the tests: it changes one place of a package at a time, and
// prints the changes that no test notices. It runs at the root of the module:
//
//	mutants [-count N] [-seed N] [-most N] [-jobs N] [-match REGEXP] PACKAGE...
//
// PACKAGE is a directory such as ./lock, one of its files, or "all" for the rooms in
// rooms.txt, which also lists the tests for each package. The same seed picks the same
// mutants of the same sources; with -match only those are picked whose line, as it is
// printed without its number, matches. equivalent.txt lists mutants that change nothing.
//
// The exit code is 0 when at most -most mutants survive, 1 when more do, and 2 for
// arguments or sources that cannot be tested.
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"thread/tools/cover"
)

//go:embed rooms.txt
var rooms string

//go:embed equivalent.txt
var equivalent string

// errSurvivors ends a run with exit code 1.
var errSurvivors = errors.New("too many mutants survive - write tests that notice them, or list equivalent ones in tools/mutants/equivalent.txt")

// usageError ends a run with exit code 2.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	err := mutate(args, stdout)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintln(stderr, "Error:", err)
	if errors.As(err, &usageError{}) {
		return 2
	}
	return 1
}

type options struct {
	count, most, jobs int
	seed              uint64
	list              bool
	match             *regexp.Regexp
	packages          []string
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.IntVar(&o.count, "count", 20, "how many mutants; 0: all")
	flags.Uint64Var(&o.seed, "seed", 0, "which mutants; 0: a random seed")
	flags.IntVar(&o.most, "most", -1, "how many may survive; by default 5 % of them")
	flags.IntVar(&o.jobs, "jobs", 1, "how many at once")
	match := flags.String("match", "", "only mutants that match")
	flags.BoolVar(&o.list, "list", false, "print the mutants and try none")
	if err := flags.Parse(args); err != nil {
		return o, usagef("%w - usage: mutants [-count N] [-seed N] [-most N] [-jobs N] [-match REGEXP] [-list] PACKAGE...", err)
	}
	if o.match, err = regexp.Compile(*match); err != nil {
		return o, usagef("-match: %w - give a regular expression", err)
	}
	if o.packages = flags.Args(); len(o.packages) == 0 {
		return o, usagef("no package - name one, such as ./lock, or all")
	}
	if o.count < 0 || o.jobs < 1 {
		return o, usagef("-count %d -jobs %d is out of range - use a count of 0 or more, and 1 job or more", o.count, o.jobs)
	}
	for o.seed == 0 {
		o.seed = rand.Uint64N(1 << 32)
	}
	return o, nil
}

// room is a package, or one of its files, and the tests that feel it.
type room struct {
	name    string
	lines   []*tests
	tests   []*test
	mutants []*mutant
}

func mutate(args []string, stdout io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	list, err := find(root, o.packages)
	if err != nil {
		return err
	}
	picked, of := pick(list, o)
	if o.list {
		for _, p := range picked {
			fmt.Fprintln(stdout, p.mutant)
		}
		return nil
	}
	scratch, err := os.MkdirTemp("", "mut") // short: sockets of tests are below it
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	b := &bench{root, scratch}
	if err := b.measureAll(list); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "seed %d: %d of %d mutants of %s\n", o.seed, min(o.count, of), of, strings.Join(o.packages, " "))
	return try(b, picked, o, stdout)
}

type candidate struct {
	*mutant
	room *room
}

// pick returns the mutants in the order in which the seed has them tried: all, as
// those that do not compile are passed over.
func pick(list []*room, o options) (picked []candidate, count int) {
	for _, r := range list {
		for _, m := range r.mutants {
			if o.match.MatchString(m.key()) {
				picked = append(picked, candidate{m, r})
			}
		}
	}
	random := rand.New(rand.NewPCG(o.seed, 0))
	random.Shuffle(len(picked), func(i, j int) { picked[i], picked[j] = picked[j], picked[i] })
	return picked, len(picked)
}

// try tries mutants until there are enough, and prints those that survive.
func try(b *bench, picked []candidate, o options, stdout io.Writer) error {
	harmless := reasons()
	if o.count == 0 {
		o.count = len(picked)
	}
	var (
		mu                               sync.Mutex
		next, tried, alive, same, failed int
		problem                          error
		wg                               sync.WaitGroup
	)
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		for ; next < len(picked) && tried < o.count && problem == nil; next++ {
			if _, ok := harmless[picked[next].key()]; ok {
				same++
				continue
			}
			next++
			tried++
			return next - 1, true
		}
		return 0, false
	}
	for range o.jobs {
		wg.Go(func() {
			for {
				n, ok := take()
				if !ok {
					return
				}
				c := picked[n]
				v, err := b.try(c.mutant, c.room.tests, n)
				mu.Lock()
				switch {
				case err != nil:
					problem = err
				case v == unbuilt:
					tried, failed = tried-1, failed+1
				case v == survived:
					alive++
					fmt.Fprintln(stdout, "survived", c.mutant)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if problem != nil {
		return problem
	}
	fmt.Fprintf(stdout, "%d tried, %d survived (%.1f %%); %d equivalent and %d that do not build passed over\n",
		tried, alive, 100*float64(alive)/float64(max(tried, 1)), same, failed)
	if o.most < 0 {
		o.most = (tried*5 + 99) / 100
	}
	if alive > o.most {
		return errSurvivors
	}
	return nil
}

// find returns the rooms that are named, with their mutants.
func find(root string, names []string) ([]*room, error) {
	table := map[string][]*tests{}
	var order []string
	for line := range strings.Lines(rooms) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] != "#" {
			if table[fields[0]] == nil {
				order = append(order, fields[0])
			}
			table[fields[0]] = append(table[fields[0]], parseTests(fields[1:]))
		}
	}
	if slices.Equal(names, []string{"all"}) {
		names = order
	}
	var list []*room
	for _, name := range names {
		r, err := findRoom(root, name)
		if err != nil {
			return nil, err
		}
		if r.lines = table[r.name]; r.lines == nil {
			r.lines = []*tests{{pkg: cover.Package(r.name)}}
		}
		list = append(list, r)
	}
	return list, nil
}

func findRoom(root, name string) (*room, error) {
	name = "./" + filepath.ToSlash(filepath.Clean(name))
	cmd := exec.Command("go", "list", "-f", `{{range .GoFiles}}{{println .}}{{end}}`, cover.Package(name))
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, usagef("%s is not a package that builds: %s - name a directory of this module, such as ./lock", name, firstProblem(stderr.Bytes()))
	}
	var paths []string
	for _, file := range strings.Fields(string(out)) {
		path := filepath.Join(cover.Package(name), file)
		if name == cover.Package(name) || path == filepath.Clean(name) {
			paths = append(paths, path)
		}
	}
	r := &room{name: name}
	if r.mutants, err = mutants(root, paths); err != nil {
		return nil, usagef("%s does not parse: %w - mend it first", name, err)
	}
	if len(r.mutants) == 0 {
		return nil, usagef("%s has nothing to change on this system - name a package with code and tests", name)
	}
	return r, nil
}

// reasons returns the lines of equivalent.txt: the key of a mutant, and below it, behind
// spaces, why it changes nothing.
func reasons() map[string]string {
	list := map[string]string{}
	key := ""
	for line := range strings.Lines(equivalent) {
		text := strings.TrimSpace(line)
		switch {
		case text == "" || text[0] == '#':
		case line[0] == ' ' || line[0] == '\t':
			list[key] = strings.TrimSpace(list[key] + " " + text)
		default:
			key = text
			list[key] = ""
		}
	}
	return list
}
