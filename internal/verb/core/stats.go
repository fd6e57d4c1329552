package core

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/cli"
)

type statsCmd struct {
	cli.ThreadFlags
	By     cli.Text `placeholder:"COLUMNS" help:"What to count by: source, type and subtype, with commas in between (default all three)."`
	Filter cli.Text `placeholder:"WHERE" help:"Count only events that match."`
	cli.SeriesFlags
	Since cli.Text `placeholder:"TIME" help:"Count only events created at or after this time: 90m for so long ago, 18:00, yesterday 09:00, 2026-03-18T10:30:00Z. Without a zone it is local time."`
	Limit cli.Text `placeholder:"N" help:"How many lines at most, the greatest counts first (default all)."`
	cli.JSONFlag
}

var statsVerb = &cli.Verb{
	Name:    "stats",
	Summary: "Count events by source, type and subtype",
	Details: `The greatest counts come first. An event without a subtype is counted apart from
those with an empty one: its subtype is -, with --json null. No event is read
unless --filter asks for more than source, type and subtype.`,
	Exits: "0 counted, perhaps nothing",
	Examples: `thread stats --thread ./inbox
thread stats --thread ./inbox --by type --source 'external:*'
thread stats --thread ./inbox --by source --since 24h --limit 10 --json`,
	Grammar: func() cli.Command { return new(statsCmd) },
}

// columns of the count.
type statsBy struct{ source, typ, subtype bool }

func parseStatsBy(s string) (by statsBy, err error) {
	for column := range strings.SplitSeq(s, ",") {
		switch strings.TrimSpace(column) {
		case "source":
			by.source = true
		case "type":
			by.typ = true
		case "subtype":
			by.subtype = true
		default:
			return by, cli.UsageError("--by "+cli.ShellWord(s)+" is not known", "give source, type, subtype, or several with commas in between")
		}
	}
	return by, nil
}

func (c *statsCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	by, err := parseStatsBy(c.By.Or("source,type,subtype"))
	if err != nil {
		return err
	}
	limit := int64(-1)
	if c.Limit.Set {
		if limit, err = cli.ParseLimit(c.Limit.Value); err != nil {
			return err
		}
	}
	var q engine.Query
	if q.Filter, err = c.Where(c.Filter.Value); err != nil {
		return err
	}
	if c.Since.Set {
		if q.Since, err = cli.ParseTime("--since", c.Since.Value, time.Now(), cli.Past); err != nil {
			return err
		}
	}
	list, err := by.count(ctx, t, q, limit)
	if err != nil {
		return err
	}
	return printStats(a, list, by, c.JSON)
}

// count returns the counts in order, at most limit unless that is negative. What is the same in
// the columns is added up.
func (by statsBy) count(ctx context.Context, t *engine.Thread, q engine.Query, limit int64) (*greatest, error) {
	if by == (statsBy{true, true, true}) && t.URL() == "" {
		best := &greatest{limit: limit}
		err := t.EachCount(ctx, q, best.add)
		best.order()
		return best, err
	}
	sums := &greatest{limit: -1}
	most := 0 // that a sum of sums left
	err := t.EachCount(ctx, q, func(s *engine.Series, n int64) {
		one := engine.Series{}
		if by.source {
			one.Source = s.Source
		}
		if by.typ {
			one.Type = s.Type
		}
		if by.subtype {
			one.Subtype, one.HasSubtype = s.Subtype, s.HasSubtype
		}
		if sums.add(&one, n); len(sums.list) >= 2*most+1<<15 {
			sums.sum()
			most = len(sums.list)
		}
	})
	sums.sum()
	sums.limit = limit
	sums.order()
	return sums, err
}

func printStats(a *cli.App, counts *greatest, by statsBy, json bool) error {
	table := &cli.Table{Out: &a.Out, Columns: cli.TableColumns(a.Out.W), Number: true, Least: []int{5, 12, 8, 8}}
	table.Header(by.cells("COUNT", "SOURCE", "TYPE", "SUBTYPE")...)
	for _, x := range counts.list {
		s := counts.series(x)
		var err error
		if json {
			err = by.json(a, &s, x.n)
		} else {
			subtype := "-"
			if s.HasSubtype {
				subtype = cli.Printable(s.Subtype)
			}
			err = table.Row(by.cells(strconv.FormatInt(x.n, 10), cli.Printable(s.Source), cli.Printable(s.Type), subtype)...)
		}
		if err != nil {
			return err
		}
	}
	return table.Flush()
}

// seriesCount is how many events a series has. There may be millions: it has no pointer that a
// collection of garbage would follow.
type seriesCount struct {
	n     int64
	head  uint64 // the first 8 bytes of the source, which compare as it does
	piece uint32 // of greatest.text
	at    uint32 // where its text begins there
}

// greatest keeps the greatest counts. With a limit it holds about twice as many as that.
type greatest struct {
	limit int64 // negative: all
	list  []seriesCount
	text  [][]byte // of the series in list, in pieces
	full  bool     // the first limit ones of list are in order
}

const textPieceBytes = 1 << 18

// add keeps a copy of a count that may be one of the greatest.
func (g *greatest) add(s *engine.Series, n int64) {
	x := g.put(s, n)
	if g.full && g.compare(x, g.list[g.limit-1]) > 0 {
		g.text[x.piece] = g.text[x.piece][:x.at]
		return
	}
	if g.list = append(g.list, x); g.limit > 0 && len(g.list) >= 64 && int64(len(g.list)/2) >= g.limit {
		g.order()
		g.full = true
	}
}

// put copies the text of a series: what an earlier transaction has read is not valid any more.
func (g *greatest) put(s *engine.Series, n int64) seriesCount {
	size := len(s.Source) + len(s.Type) + len(s.Subtype) + 3*binary.MaxVarintLen64
	if last := len(g.text) - 1; last < 0 || cap(g.text[last])-len(g.text[last]) < size {
		g.text = append(g.text, make([]byte, 0, max(size, textPieceBytes)))
	}
	last := len(g.text) - 1
	x := seriesCount{n: n, piece: uint32(last), at: uint32(len(g.text[last]))}
	subtype := 0 // 1 more than its length, 0 for none
	if s.HasSubtype {
		subtype = len(s.Subtype) + 1
	}
	b := g.text[last]
	for _, length := range [...]int{len(s.Source), len(s.Type), subtype} {
		b = binary.AppendUvarint(b, uint64(length))
	}
	b = append(append(append(b, s.Source...), s.Type...), s.Subtype...)
	g.text[last] = b
	var head [8]byte
	copy(head[:], s.Source)
	x.head = binary.BigEndian.Uint64(head[:])
	return x
}

// columns returns the text of a series.
func (g *greatest) columns(x seriesCount) (source, typ, subtype []byte, hasSubtype bool) {
	b := g.text[x.piece][x.at:]
	var lengths [3]int
	for i := range lengths {
		length, n := binary.Uvarint(b)
		lengths[i], b = int(length), b[n:]
	}
	source, b = b[:lengths[0]], b[lengths[0]:]
	typ, b = b[:lengths[1]], b[lengths[1]:]
	if hasSubtype = lengths[2] > 0; hasSubtype {
		subtype = b[:lengths[2]-1]
	}
	return source, typ, subtype, hasSubtype
}

func (g *greatest) series(x seriesCount) engine.Series {
	source, typ, subtype, hasSubtype := g.columns(x)
	return engine.Series{Source: string(source), Type: string(typ), Subtype: string(subtype), HasSubtype: hasSubtype}
}

// compare orders the greatest counts first, and equal ones by their names.
func (g *greatest) compare(x, y seriesCount) int {
	if c := cmp.Compare(y.n, x.n); c != 0 {
		return c
	}
	return g.compareNames(x, y)
}

func (g *greatest) compareNames(x, y seriesCount) int {
	if c := cmp.Compare(x.head, y.head); c != 0 {
		return c
	}
	xSource, xType, xSubtype, xHas := g.columns(x)
	ySource, yType, ySubtype, yHas := g.columns(y)
	if c := cmp.Or(bytes.Compare(xSource, ySource), bytes.Compare(xType, yType), bytes.Compare(xSubtype, ySubtype)); c != 0 || xHas == yHas {
		return c
	}
	if yHas {
		return -1
	}
	return 1
}

func (g *greatest) order() {
	slices.SortFunc(g.list, g.compare)
	if g.limit >= 0 && int64(len(g.list)) > g.limit {
		g.list = g.list[:g.limit]
		g.tidy()
	}
}

// sum adds up the counts of equal series.
func (g *greatest) sum() {
	slices.SortFunc(g.list, g.compareNames)
	sums := g.list[:0]
	for _, x := range g.list {
		if last := len(sums) - 1; last >= 0 && g.compareNames(sums[last], x) == 0 {
			sums[last].n += x.n
			continue
		}
		sums = append(sums, x)
	}
	if len(sums) < len(g.list) {
		g.list = sums
		g.tidy()
	}
}

// tidy drops the text of what is not in the list any more.
func (g *greatest) tidy() {
	old := *g
	g.text = nil
	for i, x := range g.list {
		s := old.series(x)
		g.list[i] = g.put(&s, x.n)
	}
}

func (by statsBy) cells(count, source, typ, subtype string) []string {
	row := []string{count}
	if by.source {
		row = append(row, source)
	}
	if by.typ {
		row = append(row, typ)
	}
	if by.subtype {
		row = append(row, subtype)
	}
	return row
}

func (by statsBy) json(a *cli.App, s *engine.Series, count int64) error {
	b := append(a.Out.Buf, `{"count":`...)
	b = strconv.AppendInt(b, count, 10)
	if by.source {
		b = event.AppendString(append(b, `,"source":`...), s.Source)
	}
	if by.typ {
		b = event.AppendString(append(b, `,"type":`...), s.Type)
	}
	if by.subtype && s.HasSubtype {
		b = event.AppendString(append(b, `,"subtype":`...), s.Subtype)
	} else if by.subtype {
		b = append(b, `,"subtype":null`...)
	}
	a.Out.Buf = append(b, "}\n"...)
	return a.Out.More()
}
