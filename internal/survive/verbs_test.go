package survive

import (
	"strings"
	"testing"
)

// operations are the commands that are killed, starved and cut off, every one that
// changes something.
func operations() (list []operation) {
	push := []string{"push", "--thread", "D", "--source", "self", "--type", "message", "--content", "new"}
	pushBatch := []string{"push", "--thread", "D", "--batch"}
	all := []operation{
		{name: "init", from: nothing, args: []string{"init", "D"}},
		{name: "push", from: fresh, args: push},
		{name: "push that folds", from: folding, args: push},
		{name: "push that completes a block", rare: true, from: holding(1023), args: push},
		{name: "push that rotates", rare: true, from: holding(10001), args: push},
		{name: "push that heals", rare: true, from: torn, args: push},
		{name: "push that clears half a batch", from: halfBatch, args: push},
		{name: "push with lines off", from: unlined, args: push},
		{name: "push with lines off that folds", rare: true, from: journalledOn(unlined, 64), args: push},
		{name: "batch with lines off", rare: true, from: unlined, args: pushBatch, stdin: batch(20, "new")},
		{name: "retain that turns lines off", rare: true, same: true, from: fresh, args: []string{"retain", "--thread", "D", "--lines", "off"}},
		{name: "batch", rare: true, from: fresh, args: pushBatch, stdin: batch(20, "new")},
		{name: "long batch", from: fresh, args: pushBatch, stdin: batch(10050, strings.Repeat("text ", 30)), atMost: 3},
		{name: "push that releases", rare: true, from: withDueEvents, args: push},
		{name: "pop", from: fresh, args: []string{"pop", "--thread", "D", "--consumer", "c", "--last-event-id", "2"}},
		{name: "ack", from: fresh, args: []string{"ack", "--thread", "D", "--consumer", "c", "--event-id", "3"}},
		{name: "next", reads: true, atMost: 1, from: pulled, args: []string{"next", "--thread", "D", "--consumer", "p", "--limit", "2", "--lease", "1000h"}},
		{name: "ack of a delivery", rare: true, atMost: 1, from: leased, args: []string{"ack", "--thread", "D", "--consumer", "p", "--delivery", "1"}},
		{name: "subscribe", from: fresh, args: []string{"subscribe", "--thread", "D", "--consumer", "e", "--handler", "true"}},
		{name: "unsubscribe", rare: true, from: fresh, args: []string{"unsubscribe", "--thread", "D", "--consumer", "c"}},
		{name: "outbox add", rare: true, from: fresh, args: []string{"outbox", "add", "--thread", "D", "--message", liked(1)}},
		{name: "outbox relay", from: liking, args: []string{"outbox", "relay", "--thread", "D", "--once"}},
		{name: "compact", rare: true, from: half, args: []string{"compact", "--thread", "D"}, same: true},
		{name: "prune", from: half, args: []string{"prune", "--thread", "D", "--acked"}},
		rare(retainOperation("retain", half, "80")),

		{name: "init in a directory with files", rare: true, from: files, args: []string{"init", "D"}},
		{name: "push without run and logs", rare: true, from: bare, args: push},
		{name: "push that rotates the log", rare: true, from: fullLog, args: push},
		{name: "push of a long content", rare: true, from: fresh, args: []string{"push", "--thread", "D", "--source", "s", "--type", "t", "--content", "-"},
			stdin: strings.Repeat("long content ", 80000)},
		{name: "push with a key", rare: true, from: lettered, args: append(push[:len(push):len(push)], "--dedupe-key", "fresh")},
		{name: "push with a known key", rare: true, same: true, from: lettered, args: append(push[:len(push):len(push)], "--dedupe-key", "known")},
		{name: "batch with keys", rare: true, from: lettered, args: pushBatch,
			stdin: `{"source":"s","type":"t","content":"1","dedupe_key":"known"}` + "\n" + `{"source":"s","type":"t","content":"2","dedupe_key":"new"}` + "\n"},
		{name: "push later", rare: true, from: fresh, args: append(push[:len(push):len(push)], "--delay", "1000h")},
		{name: "schedule add", rare: true, from: withDueEvents, args: []string{"schedule", "add", "--thread", "D", "--name", "n", "--when", "@hourly", "--source", "s", "--type", "t"}},
		{name: "schedule remove", rare: true, from: withDueEvents, args: []string{"schedule", "remove", "--thread", "D", "--name", "tick"}},
		{name: "peek that releases", rare: true, reads: true, from: withDueEvents, args: []string{"peek", "--thread", "D", "--last-event-id", "0"}},
		{name: "seek", rare: true, from: lettered, args: []string{"seek", "--thread", "D", "--consumer", "d", "--to", "beginning"}},
		{name: "pause", rare: true, from: fresh, args: []string{"pause", "--thread", "D", "--consumer", "c"}},
		{name: "resume", rare: true, from: paused, args: []string{"resume", "--thread", "D", "--consumer", "c"}},
		{name: "subscribe that replaces", rare: true, from: fresh, args: []string{"subscribe", "--thread", "D", "--consumer", "d", "--replace", "--filter", "id > 1"}},
		{name: "subscribe from the end", rare: true, from: fresh, args: []string{"subscribe", "--thread", "D", "--consumer", "e", "--handler", "true", "--from", "end"}},
		{name: "consume", rare: true, from: lettered, args: []string{"consume", "--thread", "D", "--consumer", "c", "--once", "--", "true"}},
		{name: "consume that rejects", rare: true, from: lettered, args: []string{"consume", "--thread", "D", "--consumer", "d", "--once", "--", "sh", "-c", "exit 65"}},
		{name: "next that acks", rare: true, reads: true, from: pulled, args: []string{"next", "--thread", "D", "--consumer", "p", "--limit", "2", "--ack"}},
		{name: "next of an expired lease", rare: true, reads: true, from: expired, args: []string{"next", "--thread", "D", "--consumer", "p", "--limit", "1", "--lease", "1000h"}},
		{name: "ack of a delivery that failed", rare: true, from: leased, args: []string{"ack", "--thread", "D", "--consumer", "p", "--delivery", "1", "--failed", "no network"}},
		{name: "ack that extends", rare: true, same: true, from: leased, args: []string{"ack", "--thread", "D", "--consumer", "p", "--delivery", "1", "--extend", "2000h"}},
		{name: "dead retry", rare: true, from: lettered, args: []string{"dead", "retry", "--thread", "D", "--consumer", "d"}},
		{name: "dead drop", rare: true, from: lettered, args: []string{"dead", "drop", "--thread", "D", "--event-id", "2"}},
		{name: "outbox add of a duplicate", rare: true, same: true, from: liking, args: []string{"outbox", "add", "--thread", "D", "--message", liked(1)}},
		{name: "outbox relay that fails", rare: true, from: triggering, args: []string{"outbox", "relay", "--thread", "D", "--once", "--", "sh", "-c", "exit 75"}, halfway: notifiedOnly},
		{name: "outbox retry", rare: true, from: refused, args: []string{"outbox", "retry", "--thread", "D", "--all"}},
		{name: "outbox config", rare: true, from: liking, args: []string{"outbox", "config", "--thread", "D", "--self-action", "on"}},
		{name: "outbox take", rare: true, reads: true, again: true, from: takable, args: []string{"outbox", "take", "--thread", "D", "--from", "sqlite:D"}},
		{name: "notifications read", rare: true, from: notified, args: []string{"notifications", "--thread", "D", "read", "4"}},
		{name: "dm", rare: true, from: fresh, args: []string{"dm", "--thread", "D", "--from", "user:1", "--to", "agent:2", "--content", "hello"}},
		{name: "batch of long contents", rare: true, from: fresh, args: pushBatch, stdin: batch(10, strings.Repeat("long content ", 3000)), atMost: 3},
		{name: "compact with long contents", rare: true, from: long, args: []string{"compact", "--thread", "D"}, same: true},
		{name: "prune with long contents", rare: true, from: long, args: []string{"prune", "--thread", "D", "--keep-last", "4", "--force"}},
		{name: "push that completes a block of types", rare: true, from: crowded(1023), args: []string{"push", "--thread", "D", "--source", "new", "--type", "fresh", "--content", "x"}},
		{name: "prune that drops series", rare: true, from: crowded(2100), args: []string{"prune", "--thread", "D", "--keep-last", "600", "--force"}},
		{name: "compact of many series", rare: true, from: crowded(2100), args: []string{"compact", "--thread", "D"}, same: true},
		{name: "prune all but the last", rare: true, from: half, args: []string{"prune", "--thread", "D", "--keep-last", "1", "--force"}},
		rare(retainOperation("retain that drops a file of lines", spentLines, "80")),
		rare(retainOperation("retain that is held back", lettered, "1")),
		{name: "push that retains", rare: true, from: limited, args: pushBatch, stdin: batch(200, "new"),
			halfway: func(t *testing.T, dir string) { unlimitedPush(t, dir, batch(200, "new")) }, complete: retainLater},
		{name: "import", rare: true, again: true, from: sqlite(1600), args: []string{"import", "D"}},
		{name: "import elsewhere", rare: true, again: true, from: nothing, source: sqlite(1600), args: []string{"import", "S", "--to", "D"}},
		{name: "export", rare: true, again: true, from: nothing, source: holding(700), args: []string{"export", "--thread", "S", "--to", "D"}},
		{name: "fix the log", rare: true, from: spoiledLines, args: []string{"check", "--thread", "D", "--fix-log"}, same: true, again: true},
		{name: "repair", rare: true, again: true, saves: true, from: nothing, source: broken, args: []string{"repair", "--thread", "S", "--to", "D"}},
	}
	for _, op := range all {
		if !op.rare || full || sample {
			list = append(list, op)
		}
	}
	return list
}
