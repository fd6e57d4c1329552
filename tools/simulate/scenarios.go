//go:build linux

package main

import "slices"

const (
	push      = "thread push --source s --type x --content hello"
	subscribe = "thread subscribe --consumer c --handler HANDLER --from beginning"
)

// scenarios are in the order in which they take turns.
var scenarios = []scenario{
	{name: "push", before: []string{subscribe}, atOnce: []string{push, push}},
	{name: "claim", before: []string{push, subscribe}, atOnce: []string{"thread dispatch", "thread dispatch", push}},
	{name: "subscribe", before: []string{push}, atOnce: []string{subscribe, push}},
	{name: "unsubscribe", before: []string{push, subscribe}, atOnce: []string{"thread unsubscribe --consumer c", push}, unread: true},
	{name: "consume", before: []string{push, push, subscribe}, refused: "consume", victim: "consume", fault: faultKill,
		atOnce: []string{"thread consume --consumer c -- sh ../work", push}},
	{name: "next", before: []string{push, push, "thread subscribe --consumer p --pull"}, unread: true,
		atOnce: []string{"thread next --consumer p --ack", "thread next --consumer p --ack", push}, refused: "next"},
	{name: "backup", before: []string{push, push, subscribe}, unread: true, pruned: true, refused: "prune",
		atOnce: []string{"thread backup copies", "thread prune --keep-last 1 --force", push}},
	{name: "serve", before: []string{push, subscribe}, atOnce: []string{"thread serve --thread t", "thread dispatch", push}},
	{name: "restore", before: []string{push, subscribe, "thread backup copies"},
		atOnce: []string{"thread serve --root .", "thread restore copies --to r", push}, after: [][2]string{{"thread check --thread r", ""}}},
	{name: "work", before: []string{"thread run enqueue --agent a --id r1"}, refused: "run",
		atOnce: []string{"thread run work --drain -- true", "thread run recover", "thread run cancel r1"},
		after:  [][2]string{{"thread run list", "completed|cancelled"}}},
	// The journal is nearly full.
	{name: "fold", before: full, atOnce: []string{push, push, push, "thread peek --last-event-id 0"}, unread: true, fault: faultKill},
	{name: "power", before: full, atOnce: []string{push, push, push}, unread: true, fault: faultPower},
	// Scripts. A supervisor is killed before it has noted which process the handler is.
	{name: "noted", before: []string{subscribe}, atOnce: []string{push}, fault: faultNone,
		windows: []window{{hold: "wake pwrite logs/handlers/c.run", kill: 2}}},
	// A supervisor has decided to end, and then the wake-up of a push finds it there.
	{name: "release", before: []string{subscribe}, atOnce: []string{push, push},
		windows: []window{{hold: "wake flock run/c.lock UN", until: "wake"}}},
	// A dispatch takes the lock when the other one has done everything, and ends while a push comes.
	{name: "notdue", before: []string{push, subscribe}, atOnce: []string{"thread dispatch", "thread dispatch", push}, windows: []window{
		{hold: "work openat run/c.lock", until: "work"},
		{hold: "work flock run/c.lock UN", until: "wake", same: 1},
		{hold: "push openat run/.gate", after: 2},
	}},
}

var full = slices.Repeat([]string{push}, 64)
