package redis

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/gomodule/redigo/redis"

	"thread/bridge/trigger"
)

// Redis does not tell when a stream was made, and one that was deleted and made again
// may have the same ids. But its groups are deleted with it, and their consumers with
// them. So the generation is the name of our consumer, which is never used again.

// The records next to the position, whose key is the generation.
const (
	generationKey = "generation"
	seenKey       = "seen" // id and sum of the last entry of a batch
)

// consumerPrefix begins the names of consumers.
const consumerPrefix = "thread-bridge:"

// streamInfo is what XINFO STREAM says.
type streamInfo struct {
	last, first, deleted entryID // ids; first is the first of no entry when the stream is empty
	empty                bool
}

func (k *source) info(ctx context.Context) (i streamInfo, err error) {
	return infoOf(ctx, k.cmd, k.s.Queue)
}

func infoOf(ctx context.Context, c *client, stream string) (i streamInfo, err error) {
	values, err := redis.Values(c.do(ctx, "XINFO", "STREAM", stream))
	for n := 0; n+1 < len(values) && err == nil; n += 2 {
		name, _ := redis.String(values[n], nil) // names are texts
		switch name {
		case "length":
			var length int64
			length, err = redis.Int64(values[n+1], nil)
			i.empty = length == 0
		case "last-generated-id", "max-deleted-entry-id":
			var text string
			if text, err = redis.String(values[n+1], nil); err == nil {
				id, e := parseID(text)
				if err = e; name == "last-generated-id" {
					i.last = id
				} else {
					i.deleted = id
				}
			}
		case "first-entry":
			if values[n+1] != nil {
				var list []entry
				if list, err = entriesOf([]any{values[n+1]}, nil); err == nil && len(list) == 1 {
					i.first = list[0].id
				}
			}
		}
	}
	return i, err
}

// join makes this source a consumer of the group, and decides where it continues: where
// the group is, but behind the position of the thread when the group was deleted, and
// at the start of a stream that was made again.
func (k *source) join(ctx context.Context) error {
	info, err := k.info(ctx)
	if refused(err, "ERR no such key") {
		if !k.s.Bool("create") {
			return fmt.Errorf("stream %s is not there: make it, or set adapter.connection.create", k.s.Queue)
		}
		info, err = streamInfo{empty: true}, nil
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", k.s.Queue, err)
	}
	stored, err := k.stored().Load("")
	if err != nil {
		return err
	}
	name := string(stored[generationKey])
	if k.dry() {
		return k.peekFrom(ctx, name, stored[name])
	}
	there, err := k.consumers(ctx)
	if err != nil {
		return err
	}
	if name != "" && slices.Contains(there, consumerPrefix+name) {
		k.rejoin(name)
	} else if err := k.joinAnew(ctx, name, info, stored); err != nil {
		return err
	}
	if k.shared {
		return nil
	}
	// A group of one: what another consumer has left is ours.
	return k.claimAll(ctx)
}

// rejoin continues in a group that has our consumer: first with what it was given and
// has not acknowledged.
func (k *source) rejoin(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.generation != name {
		k.generation, k.last, k.held = name, entryID{}, map[string]bool{}
	}
	k.pending = true
}

func (k *source) joinAnew(ctx context.Context, name string, info streamInfo, stored map[string][]byte) error {
	at, read := idOf(stored[name])
	before := name != "" && (len(stored) > 1 || k.shared)
	if name != "" && read && !k.shared {
		same, err := k.sameStream(ctx, at, stored[seenKey], info)
		if err != nil {
			return err
		}
		if same {
			return k.groupAt(ctx, name, at.String(), true)
		}
	}
	start := "0"
	if before {
		k.warn("the stream or its group was made again: it is read from its start", "stream", k.s.Queue)
	} else if k.s.Text("start") == "new" {
		start = "$"
	}
	// The name first: one without a position counts for nothing.
	name = newName()
	if err := k.stored().Update(ctx, []trigger.Write{{Key: generationKey, Value: []byte(name)}}); err != nil {
		return err
	}
	return k.groupAt(ctx, name, start, false)
}

// groupAt makes the group where there is none, and our consumer. One that is there is
// moved to id only when it has to be.
func (k *source) groupAt(ctx context.Context, name, id string, move bool) error {
	args := []any{"CREATE", k.s.Queue, k.s.Group, id}
	if k.s.Bool("create") {
		args = append(args, "MKSTREAM")
	}
	_, err := k.cmd.do(ctx, "XGROUP", args...)
	if refused(err, "BUSYGROUP") {
		if err = nil; move {
			_, err = k.cmd.do(ctx, "XGROUP", "SETID", k.s.Queue, k.s.Group, id)
		}
	}
	if err != nil {
		return fmt.Errorf("group %s of stream %s: %w", k.s.Group, k.s.Queue, err)
	}
	_, err = k.cmd.do(ctx, "XGROUP", "CREATECONSUMER", k.s.Queue, k.s.Group, consumerPrefix+name)
	if err != nil {
		return fmt.Errorf("group %s of stream %s: %w", k.s.Group, k.s.Queue, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	// Behind a position nothing is pending that does not come anyway.
	k.generation, k.last, k.pending, k.held = name, entryID{}, !move, map[string]bool{}
	return nil
}

// sameStream reports whether the stream is the stream of the position, though its group is
// not: by the last entry that was stored, when it is there.
func (k *source) sameStream(ctx context.Context, at entryID, seen []byte, info streamInfo) (bool, error) {
	if info.last.less(at) || len(seen) != 32 {
		return false, nil
	}
	id, _ := idOf(seen[:16])
	list, err := entriesOf(k.cmd.do(ctx, "XRANGE", k.s.Queue, id.String(), id.String()))
	switch {
	case err != nil:
		return false, err
	case len(list) == 1:
		return bytes.Equal(list[0].sum(), seen[16:]), nil
	case info.empty || at.less(info.first):
		return true, nil // nothing is passed over either way
	}
	return !info.deleted.less(id), nil // it was deleted there
}

// consumers returns the names of the group's consumers, none without a group.
func (k *source) consumers(ctx context.Context) (names []string, err error) {
	values, err := redis.Values(k.cmd.do(ctx, "XINFO", "CONSUMERS", k.s.Queue, k.s.Group))
	if refused(err, "NOGROUP", "ERR no such key") {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("group %s of stream %s: %w", k.s.Group, k.s.Queue, err)
	}
	for _, v := range values {
		m, err := redis.Values(v, nil)
		if err != nil || len(m) < 2 {
			return nil, errors.Join(fmt.Errorf("not a consumer: %v", v), err)
		}
		name, err := redis.String(m[1], nil) // "name" comes first
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// claimAll takes over what is pending for others.
func (k *source) claimAll(ctx context.Context) error {
	for cursor := "0-0"; ; {
		values, err := redis.Values(k.cmd.do(ctx, "XAUTOCLAIM", k.s.Queue, k.s.Group, k.consumer(), 0, cursor, "COUNT", 1000, "JUSTID"))
		if err != nil || len(values) < 2 {
			return errors.Join(fmt.Errorf("taking over what is pending in group %s", k.s.Group), err)
		}
		if cursor, err = redis.String(values[0], nil); err != nil || cursor == "0-0" {
			return err
		}
	}
}

// dry reports whether nothing may be taken: in a validation, and in a dry run.
func (k *source) dry() bool { return k.s.Instance == "" }

// peekFrom finds where a dry run reads: where the trigger would.
func (k *source) peekFrom(ctx context.Context, name string, at []byte) error {
	last, read := idOf(at)
	groups, err := redis.Values(k.cmd.do(ctx, "XINFO", "GROUPS", k.s.Queue))
	if err != nil && !refused(err, "ERR no such key") {
		return err
	}
	for _, v := range groups {
		if g := groupOf(v); !read && g.name == k.s.Group {
			last, read = g.last, true
		}
	}
	if !read && k.s.Text("start") == "new" {
		info, err := k.info(ctx)
		if err != nil && !refused(err, "ERR no such key") {
			return err
		}
		last = info.last
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.generation, k.last, k.pending, k.held = name, last, false, map[string]bool{}
	return nil
}

// group is what XINFO GROUPS says of one.
type group struct {
	name    string
	last    entryID
	pending int64
	lag     int64 // -1: not known
}

func groupOf(v any) (g group) {
	g.lag = -1
	values, _ := redis.Values(v, nil) // nothing is found in what is none
	for n := 0; n+1 < len(values); n += 2 {
		name, _ := redis.String(values[n], nil)
		switch name {
		case "name":
			g.name, _ = redis.String(values[n+1], nil)
		case "last-delivered-id":
			text, _ := redis.String(values[n+1], nil)
			g.last, _ = parseID(text)
		case "pending":
			g.pending, _ = redis.Int64(values[n+1], nil)
		case "lag":
			if lag, err := redis.Int64(values[n+1], nil); err == nil {
				g.lag = lag
			}
		}
	}
	return g
}

func newName() string {
	b := make([]byte, 8)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// Seek implements trigger.Seeker: the group is made again at that place, so that
// nothing of before is pending.
func (k *source) Seek(ctx context.Context, _ trigger.State, to trigger.Place) ([]trigger.Write, error) {
	if k.shared {
		return nil, fmt.Errorf("others read in group %s, too: seeking is %w for shared groups", k.s.Group, trigger.ErrNotBuilt)
	}
	info, err := k.info(ctx)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", k.s.Queue, err)
	}
	var at entryID
	switch ms := to.At.UnixMilli(); {
	case to.Name == "end":
		at = info.last
	case to.Name == "time" && ms > 0:
		at = entryID{uint64(ms) - 1, 1<<64 - 1}
	}
	if _, err := k.cmd.do(ctx, "XGROUP", "DESTROY", k.s.Queue, k.s.Group); err != nil {
		return nil, err
	}
	name := newName()
	if err := k.groupAt(ctx, name, at.String(), false); err != nil {
		return nil, err
	}
	return []trigger.Write{{Key: generationKey, Value: []byte(name)}, {Key: name, Value: at.bytes()}, {Key: seenKey, Delete: true}}, nil
}

func milliseconds(k *source) string {
	return strconv.FormatInt(k.s.Duration("min_idle").Milliseconds(), 10)
}
