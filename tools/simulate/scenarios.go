//go:build linux

package main

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
	{name: "consume", before: []string{push, push, subscribe}, refused: "consume", victim: "consume",
		atOnce: []string{"thread consume --consumer c -- sh ../work", push}},
	{name: "next", before: []string{push, push, "thread subscribe --consumer p --pull"}, unread: true,
		atOnce: []string{"thread next --consumer p --ack", "thread next --consumer p --ack", push}, refused: "next"},
	{name: "backup", before: []string{push, push, subscribe}, unread: true, pruned: true, refused: "prune",
		atOnce: []string{"thread backup copies", "thread prune --keep-last 1 --force", push}},
}
