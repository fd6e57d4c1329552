package bolt_test

import (
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"thread/engine"
	"thread/event"
	"thread/filter"
	"thread/internal/faults"
	"thread/internal/fsck"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
)

// contentOf returns the content of the i-th event, from 0; the content of some is in pieces.
func contentOf(i int) string {
	if i%400 == 37 {
		return large[:20_000]
	}
	return fmt.Sprint("content ", i)
}

// everything makes a thread that has everything that a database can hold.
func everything(t *testing.T, dir string) {
	t.Helper()
	th, err := engine.Init(dir)
	must(t, err)
	defer th.Close()
	must(t, th.Subscribe(ctx, engine.Subscription{Consumer: "c", Handler: "true", Filter: event.Text("type = 't3'")}))
	_, err = th.PushAll(ctx, func(yield func(event.Draft, error) bool) {
		for i := range 1500 { // a column block, and a tail
			d := event.Draft{Source: fmt.Sprint("source ", i%70), Type: fmt.Sprint("t", i%5), Content: contentOf(i)}
			if i%100 == 0 {
				d.DedupeKey = fmt.Sprint("key ", i)
			}
			if !yield(d, nil) {
				return
			}
		}
	})
	must(t, err)
	must(t, th.Ack(ctx, "c", 1200))
	must(t, write(th, func(tx *bolt.Tx) error { return tx.SetSequence("mine", 77) }))
	must(t, th.Update(ctx, func(tx *engine.Tx) error {
		r, err := tx.Records("mine")
		for i := range 300 {
			if err == nil {
				err = r.Put(fmt.Append(nil, "record ", i), fmt.Append(nil, "value ", i))
			}
		}
		return err
	}))
	for i := range 3 {
		_, err := th.Push(ctx, draft(fmt.Sprint("last ", i)))
		must(t, err)
	}
}

// questions are what a database is asked. Each returns text in which any wrong answer
// shows.
func questions() map[string]func(th *engine.Thread) (string, error) {
	return map[string]func(th *engine.Thread) (string, error){
		"events": allEvents,
		"events by id": func(th *engine.Thread) (string, error) {
			return "", view(th, func(tx *bolt.Tx) error {
				for id := int64(1); id <= 1500; id += 37 {
					e, ok, err := tx.Event(id)
					if err != nil {
						return err
					}
					if !ok || (e.ID != id || e.Source != fmt.Sprint("source ", (id-1)%70) || e.Content != contentOf(int(id-1))) {
						return fmt.Errorf("event %d is %.100v", id, e)
					}
					if ok, err := tx.Has(id); !ok || err != nil {
						return errors.Join(err, fmt.Errorf("event %d is not there", id))
					}
				}
				return nil
			})
		},
		"backwards": func(th *engine.Thread) (string, error) {
			return events(th, engine.Query{Reverse: true, Filter: "content LIKE '%7'"})
		},
		"by type": func(th *engine.Thread) (string, error) {
			return events(th, engine.Query{After: 900, Filter: "type = 't2' AND source <> 'source 3'"})
		},
		"ids": func(th *engine.Thread) (string, error) {
			var ids []int64
			f, err := filter.Compile("source = 'source 7'")
			if err == nil {
				err = view(th, func(tx *bolt.Tx) error {
					_, err := tx.Scan(store.Scan{Selection: store.NewSelection(f, nil), Upto: 1600}, func(id int64) (bool, error) {
						ids = append(ids, id)
						return true, nil
					})
					return err
				})
			}
			return fmt.Sprint(ids), err
		},
		"records": func(th *engine.Thread) (string, error) {
			sum := fnv.New64()
			err := view(th, func(tx *bolt.Tx) error {
				n, err := tx.Sequence("mine")
				if err != nil {
					return err
				}
				fmt.Fprint(sum, n)
				return tx.Ascend("mine", nil, func(k, v []byte) (bool, error) {
					fmt.Fprintf(sum, "%q %q", k, v)
					return true, nil
				})
			})
			return fmt.Sprint(sum.Sum64()), err
		},
		"counts": func(th *engine.Thread) (string, error) {
			counts, err := th.Counts(ctx, engine.Query{})
			return fmt.Sprint(len(counts)), err
		},
		"snapshot": func(th *engine.Thread) (string, error) {
			s, err := store.TakeSnapshot(ctx, dirOf(th))
			sum := fnv.New64()
			fmt.Fprint(sum, s.Head, s.LastID, s.Stored, s.Pruned, s.Floor, len(s.Subscriptions), s.Progress) // not the records of others
			return fmt.Sprint(sum.Sum64()), err
		},
		"pop": func(th *engine.Thread) (string, error) {
			page, err := th.Pop(ctx, "c", engine.PopQuery{LastAcked: 1200, Limit: 10})
			if err != nil {
				return "", err
			}
			sum := fnv.New64()
			for e, err := range page.Events {
				if err != nil {
					return "", err
				}
				fmt.Fprint(sum, e)
			}
			return fmt.Sprint(sum.Sum64()), nil
		},
		"push": func(th *engine.Thread) (string, error) {
			e, err := th.Push(ctx, event.Draft{Source: "source 3", Type: "t2", Content: large})
			if err != nil {
				return "", err
			}
			all, err := events(th, engine.Query{After: e.ID - 1, Filter: "type = 't2'"})
			n, _, _ := strings.Cut(all, " ") // the time is another one
			return fmt.Sprint(e.ID, " ", n), err
		},
		"batch": func(th *engine.Thread) (string, error) {
			s, err := openStore(th.Dir(), bolt.Options{MaxGroup: 4})
			if err != nil {
				return "", err
			}
			defer s.Close()
			b, err := s.PushAll(ctx, drafts(9, large))
			return fmt.Sprint(b.First, b.Last), err
		},
		"compact": func(th *engine.Thread) (string, error) {
			if _, err := th.Compact(ctx); err != nil {
				return "", err
			}
			return rewritten(th)
		},
		"prune": func(th *engine.Thread) (string, error) {
			keep := int64(400)
			if _, err := th.Prune(ctx, engine.Retention{KeepLast: &keep}); err != nil {
				return "", err
			}
			return rewritten(th)
		},
		"copy": func(th *engine.Thread) (string, error) {
			if _, err := copyTo(ctx, th.Dir(), bolt.CopyOptions{}); err != nil {
				return "", err
			}
			if err := os.Rename(copied(th.Dir()), filepath.Join(th.Dir(), bolt.DatabaseName)); err != nil {
				return "", err
			}
			return rewritten(th)
		},
	}
}

// rewritten asks a copy for all that it holds, and whether it is sound.
func rewritten(th *engine.Thread) (string, error) {
	got, err := answers(th)
	if err != nil {
		return "", err
	}
	pushed, err := questions()["push"](th)
	if err != nil {
		return "", err
	}
	report, err := fsck.Check(ctx, th)
	if err != nil {
		return "", err
	}
	return fmt.Sprint(got, pushed, report.Faults), nil
}

// answers returns those to most questions.
func answers(th *engine.Thread) (answers string, err error) {
	for _, name := range []string{"events", "by type", "ids", "counts", "records", "snapshot", "pop"} {
		answer, err := questions()[name](th)
		if err != nil {
			return "", fmt.Errorf("%s of the copy: %w", name, err)
		}
		answers += name + " " + answer + " "
	}
	return answers, nil
}

func allEvents(th *engine.Thread) (string, error) { return events(th, engine.Query{}) }

func events(th *engine.Thread, q engine.Query) (string, error) {
	sum, n := fnv.New64(), 0
	for e, err := range th.Events(ctx, q) {
		if err != nil {
			return "", err
		}
		sub := ""
		if e.Subtype != nil {
			sub = *e.Subtype
		}
		fmt.Fprintln(sum, e.ID, e.CreatedAt, e.Source, e.Type, sub, e.Content)
		n++
	}
	return fmt.Sprint(n, sum.Sum64()), nil
}

// TestDamagedPages: whichever page of a database is gone, a call gives the answer that it
// gave before, or returns ErrCorrupt.
func TestDamagedPages(t *testing.T) {
	sound := filepath.Join(faults.Dir(t), "t")
	everything(t, sound)
	damagePages(t, sound, slices.Sorted(maps.Keys(questions())))
}

// TestDamagedBehindABatch is TestDamagedPages for what a batch that was cut short has left,
// which the next writer removes.
func TestDamagedBehindABatch(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	everything(t, dir)
	s, err := openStore(dir, bolt.Options{MaxGroup: 560})
	must(t, err)
	var ds []event.Draft
	for i := range 561 {
		ds = append(ds, event.Draft{Source: fmt.Sprint("other ", i%9), Type: fmt.Sprint("other ", i%3), Content: fmt.Sprint("lost ", i), DedupeKey: fmt.Sprint("other ", i)})
	}
	must(t, bolt.CutBatch(ctx, s, ds))
	damagePages(t, dir, []string{"push", "batch", "compact", "by type", "snapshot"})
}

func damagePages(t *testing.T, sound string, names []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(sound, bolt.DatabaseName))
	must(t, err)
	dir := faults.Dir(t)
	ask := func(name string) (string, error) {
		must(t, os.CopyFS(filepath.Join(dir, "t"), os.DirFS(sound)))
		defer os.RemoveAll(filepath.Join(dir, "t"))
		must(t, os.WriteFile(filepath.Join(dir, "t", bolt.DatabaseName), b, 0o600))
		th, err := engine.Open(filepath.Join(dir, "t"))
		if err != nil {
			return "", err
		}
		defer th.Close()
		return questions()[name](th)
	}
	want := map[string]string{}
	for _, name := range names {
		want[name], err = ask(name)
		must(t, err)
	}
	for page := range len(b) / disk.PageBytes {
		of := b[page*disk.PageBytes:][:disk.PageBytes]
		whole := string(of)
		clear(of)
		for i, name := range names {
			if (i+page)%2 == 0 { // half of it takes a second
				continue
			}
			got, err := ask(name)
			if err != nil && !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrNotDatabase) || err == nil && got != want[name] {
				t.Errorf("page %d: %s is %s, want %s, %v", page, name, got, want[name], err)
			}
		}
		copy(of, whole)
	}
}
