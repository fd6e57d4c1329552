package trigger

import (
	"bytes"
	"context"
	"time"

	"thread/engine"
)

func (c *Config) row(i *item, now time.Time) Row {
	return Row{at: now.UnixMilli(), TraceID: i.env.TraceID, MessageID: i.env.MessageID, Queue: c.Queue,
		EventName: i.env.Type(), TenantID: i.env.TenantID, DurationMS: milliseconds(now.Sub(i.begun)), Consumer: c.Consumer}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func text(s string) *string { return &s }

// ledger is the ledger of one trigger within a transaction.
type ledger struct {
	r      *engine.Records
	prefix []byte
	keep   int64
	last   int64
	added  int
}

func openLedger(r *engine.Records, c *Config) (*ledger, error) {
	l := &ledger{r: r, prefix: key(kindLedger, c.Name), keep: c.LedgerKeep}
	for rec, err := range r.Descend(l.prefix, after(l.prefix)) {
		if err != nil {
			return nil, err
		}
		l.last = numberOf(rec.Key)
		break
	}
	return l, nil
}

// add stores a row and returns its number.
func (l *ledger) add(row *Row) (int64, error) {
	l.last++
	l.added++
	return l.last, put(l.r, numbered(l.prefix, l.last), row.encode())
}

// update changes a row, if it is still there.
func (l *ledger) update(n int64, change func(*Row)) error {
	k := numbered(l.prefix, n)
	b, err := get(l.r, k)
	if b == nil || err != nil {
		return err
	}
	row, err := decodeRow(b)
	if err != nil {
		return err
	}
	change(&row)
	return put(l.r, k, row.encode())
}

// sweep deletes some of the rows before the newest keep.
func (l *ledger) sweep() error {
	var old [][]byte
	for rec, err := range l.r.Ascend(l.prefix, numbered(l.prefix, max(0, l.last-l.keep)+1)) {
		if err != nil {
			return err
		}
		if old = append(old, bytes.Clone(rec.Key)); len(old) >= sweepAtLeast+2*l.added {
			break
		}
	}
	for _, k := range old {
		if err := l.r.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

// Ledger returns the newest rows of the trigger of that name, newest first, at most
// limit, only those with that status unless it is "".
func Ledger(ctx context.Context, t *engine.Thread, name, status string, limit int) (rows []Row, err error) {
	err = t.View(ctx, func(tx *engine.Tx) error {
		r, err := tx.Records(table)
		if err != nil {
			return err
		}
		prefix := key(kindLedger, name)
		for rec, err := range r.Descend(prefix, after(prefix)) {
			if err != nil {
				return err
			}
			v, err := checked(rec.Key, rec.Value)
			if err != nil {
				return err
			}
			row, err := decodeRow(v)
			if err != nil {
				return err
			}
			if status != "" && row.Status != status {
				continue
			}
			if rows = append(rows, row); len(rows) >= limit {
				break
			}
		}
		return nil
	})
	return rows, err
}
