package core

import (
	"context"
	"fmt"
	"os"
	"strings"

	"thread/internal/cli"
	"thread/internal/fsck"
	"thread/internal/target"
	"thread/internal/terminal"
)

type repairCmd struct {
	cli.ThreadFlags
	To cli.Text `required:"" placeholder:"NEWDIR" help:"The directory for what can be saved; it must not be a thread yet."`
	cli.JSONFlag
}

var repairVerb = &cli.Verb{
	Name:    "repair",
	Summary: "Save what can be read of a damaged thread into a new directory",
	Details: `Takes each event from the database where its checksum fits, from the state
before the last change where that is intact, from events*.jsonl, or from pages that
are no longer in use; with them the subscriptions and the progress. The index is
rebuilt. Prints which ids were lost, and which may have been: an id that may have
been assigned is not assigned again. The damaged directory is not changed. Exit
code 1 when anything was, or may have been, lost.`,
	Exits: "0 everything was saved\n1 something could not be saved: what, is printed\n130 interrupted on a terminal",
	Examples: `thread repair --thread ./inbox --to ./inbox.new
mv ./inbox ./inbox.damaged && mv ./inbox.new ./inbox`,
	Grammar:     func() cli.Command { return new(repairCmd) },
	Directories: "restore it from a backup of the database",
}

func (c *repairCmd) Run(ctx context.Context, a *cli.App) error {
	to, err := cli.Resolve(c.To.Value)
	if err != nil {
		return err
	}
	if c.To.Value == "" {
		return cli.UsageError("--to is empty", "name a new directory")
	}
	if err := a.SetDir("--thread", c.Thread.Value); err != nil {
		return err
	}
	if err := target.Outside(to); err != nil {
		return err
	}
	// The repaired thread would continue with lines that are another process's.
	_, unfinished := os.Lstat(to + "/events.db.new") // of a repair that was killed: it is done again
	if _, err := os.Lstat(to + "/events.jsonl"); err == nil && unfinished != nil && !cli.IsThread(to) {
		return cli.Taken(to + "/events.jsonl")
	}
	a.Target = to
	var r *fsck.RepairReport
	err = longJob(ctx, a, "nothing was saved; the damaged directory is as it was", func(ctx context.Context) (err error) {
		r, err = fsck.Repair(ctx, a.Dir, to)
		return err
	})
	if err != nil {
		return err
	}
	if c.JSON {
		err = a.Out.ReportJSON(newRepairJSON(r))
	} else {
		a.Out.Buf = appendRepairText(a.Out.Buf, r, to)
	}
	if r.Complete() || err != nil {
		return err
	}
	if err := a.Out.Flush(); err != nil {
		return err
	}
	return cli.LogicError("not everything could be saved", "keep "+a.Dir+" and look at what thread repair printed")
}

func appendRepairText(b []byte, r *fsck.RepairReport, to string) []byte {
	b = fmt.Appendf(b, "Saved %d events into %s\n", r.Saved, terminal.Printable(to))
	for _, s := range []struct {
		n    int64
		from string
	}{{r.FromDatabase, "the database"}, {r.FromPrevious, "the state before its last change"},
		{r.FromLines, "events*.jsonl"}, {r.FromUnused, "unused pages"}} {
		if s.n > 0 {
			b = fmt.Appendf(b, "  %d from %s\n", s.n, s.from)
		}
	}
	b = fmt.Appendf(b, "Subscriptions: %d\nProgress: %d consumers\n", r.Subscriptions, r.Progress)
	for _, p := range r.Problems {
		b = fmt.Appendf(b, "Problem: %s\n", terminal.Printable(p))
	}
	lost := idRanges(r.Lost)
	switch {
	case r.LostMore > 0 && lost == "":
		lost = fmt.Sprintf("%d events, whose ids are not known", r.LostMore)
	case r.LostMore > 0:
		lost += fmt.Sprintf(", and %d events more, whose ids are not known", r.LostMore)
	case lost == "" && len(r.Unknown) > 0:
		lost = "no event that is known of"
	case lost == "":
		lost = "no event"
	}
	b = fmt.Appendf(b, "Lost: %s\n", lost)
	if len(r.Unknown) > 0 {
		b = fmt.Appendf(b, "Not known whether there were events: %s\n", idRanges(r.Unknown))
	}
	return fmt.Appendf(b, "Next id: %d\n", r.NextID)
}

func idRanges(all []fsck.IDRange) string {
	ranges := make([]string, len(all))
	for i, l := range all {
		ranges[i] = fmt.Sprint(l.First)
		if l.Last > l.First {
			ranges[i] = fmt.Sprintf("%d-%d", l.First, l.Last)
		}
	}
	return strings.Join(ranges, ", ")
}

// repairJSON is what repair --json prints.
type repairJSON struct {
	Saved         int64      `json:"saved_count"`
	FromDatabase  int64      `json:"from_database"`
	FromPrevious  int64      `json:"from_previous_state"`
	FromLines     int64      `json:"from_jsonl"`
	FromUnused    int64      `json:"from_unused_pages"`
	Subscriptions int64      `json:"subscription_count"`
	Progress      int64      `json:"progress_count"`
	Lost          [][2]int64 `json:"lost"`    // first and last id
	Unknown       [][2]int64 `json:"unknown"` // the same
	LostMore      int64      `json:"lost_more_count"`
	NextID        int64      `json:"next_id"`
	Problems      []string   `json:"problems"`
}

func newRepairJSON(r *fsck.RepairReport) repairJSON {
	ranges := func(all []fsck.IDRange) [][2]int64 {
		list := make([][2]int64, len(all))
		for i, l := range all {
			list[i] = [2]int64{l.First, l.Last}
		}
		return list
	}
	return repairJSON{r.Saved, r.FromDatabase, r.FromPrevious, r.FromLines, r.FromUnused, r.Subscriptions, r.Progress,
		ranges(r.Lost), ranges(r.Unknown), r.LostMore, r.NextID, append([]string{}, r.Problems...)}
}
