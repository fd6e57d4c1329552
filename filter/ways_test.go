package filter

import (
	"fmt"
	"testing"
)

// decide returns what r is for f, decided in every way there is: by Match, by walking the
// tree, and by the program that the text of the translation reads back as. All must
// agree, in the error also.
type decider struct {
	f         *Filter
	m, parsed *Matcher
}

func newDecider(f *Filter) *decider {
	d := &decider{f: f, m: f.Matcher()}
	if parsed := readBack(f); parsed != nil {
		d.parsed = parsed.Matcher()
		d.parsed.frame.now = d.m.frame.now
	}
	return d
}

func (d *decider) decide(r *Row) (bool, error) {
	got, err := d.m.Match(r)
	if d.f.root == nil {
		return got, err
	}
	tree := Matcher{filter: d.f}
	tree.frame.row, tree.frame.now = *r, d.m.frame.now
	if want, wantErr := tree.walk(d.f.root); got != want || fmt.Sprint(err) != fmt.Sprint(wantErr) {
		panic(fmt.Sprintf("filter %q, event %+v\n%s\ngives %v, %v; the tree %v, %v", d.f.text, *r, d.f.Expr(), got, err, want, wantErr))
	}
	if d.parsed == nil {
		return got, err
	}
	if again, againErr := d.parsed.Match(r); got != again || fmt.Sprint(err) != fmt.Sprint(againErr) {
		panic(fmt.Sprintf("filter %q, event %+v\n%s\ngives %v, %v; read back %v, %v", d.f.text, *r, d.f.Expr(), got, err, again, againErr))
	}
	return got, err
}

// TestSameAsTree compares the program with the tree on random filters, those included in
// which versions of SQLite differ and those that fail.
func TestSameAsTree(t *testing.T) {
	rows := append(nastyRows(), nulRows()...)
	compared, failed, decisions := 0, 0, 0
	for _, exact := range []bool{false, true} {
		randomTexts(checks(t)/2, nil, exact, func(text string) {
			f, err := Compile(text)
			if err != nil {
				return
			}
			d := newDecider(f)
			compared++
			for i := range rows {
				decisions++
				if _, err := d.decide(&rows[i]); err != nil {
					failed++
				}
			}
		})
	}
	t.Logf("%d filters, %d decisions, %d of them errors", compared, decisions, failed)
	if failed == 0 || compared < checks(t)/2 {
		t.Errorf("%d filters and %d errors prove little", compared, failed)
	}
}
