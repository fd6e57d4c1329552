package pgstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func durabilityOf(row [][]byte) durability {
	d := durability{fsync: string(row[0]) == "on", fullPageWrites: string(row[1]) == "on", hosts: 1}
	if names := strings.TrimSpace(string(row[2])); names != "" {
		before, list, found := strings.Cut(names, "(")
		if !found {
			list = names
		}
		d.unnamed = slices.ContainsFunc(strings.Split(strings.TrimRight(list, ") "), ","), func(s string) bool { return strings.Trim(s, " \t\n\"") == "*" })
		if !d.unnamed {
			d.hosts += standbys(before, found)
		}
	}
	return d
}

// standbys is how many standbys a COMMIT waits for: of FIRST n (...), ANY n (...), n (...)
// n, of a list of names 1. Where * is among the names it counts none: pg_basebackup and
// pg_receivewal, which stream as a standby does, would do.
func standbys(before string, found bool) int64 {
	if !found {
		return 1
	}
	words := strings.Fields(before)
	if len(words) == 0 {
		return 1
	}
	n, err := strconv.ParseInt(words[len(words)-1], 10, 64)
	if err != nil || n < 1 {
		return 1
	}
	return n
}

func (d durability) String() string {
	s := fmt.Sprintf("%d hosts", d.hosts)
	if d.hosts == 1 {
		s = "1 host"
	}
	switch {
	case !d.fsync:
		s += ", no fsync"
	case !d.fullPageWrites:
		s += ", fsync, torn pages"
	default:
		s += ", fsync"
	}
	if d.unnamed {
		s += ", standbys not named"
	}
	return s
}

// checkDurable returns ErrWeak for settings with which a power cut loses or damages what
// was stored, and where fewer hosts have it than the URL asks for, unless the URL allows
// that.
func (a *Address) checkDurable(d durability) error {
	switch {
	case a.weak:
		return nil
	case !d.fsync:
		return fmt.Errorf("%w: fsync is off", ErrWeak)
	case !d.fullPageWrites:
		return fmt.Errorf("%w: full_page_writes is off", ErrWeak)
	case d.hosts < a.hosts && d.unnamed:
		return fmt.Errorf("%w: by the * in synchronous_standby_names a base backup counts as a standby, so name the standbys there", ErrWeak)
	case d.hosts < a.hosts:
		return fmt.Errorf("%w: by synchronous_standby_names %d of the %d hosts that are asked for have it", ErrWeak, d.hosts, a.hosts)
	}
	return nil
}

// Durability implements store.Durable.
func (s *Store) Durability(ctx context.Context) (text string, err error) {
	err = s.run(ctx, false, nil, func(tx *tx) error {
		text = tx.durability.String()
		return nil
	})
	return text, err
}
