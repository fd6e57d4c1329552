#!/bin/sh
# An agent loop: think, call a tool, think again, answer. It is the command of a queued
# run, and started anew after a crash it goes on where its session stands. Its first
# attempt crashes in the middle: CRASH=1.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

model() { # a stub: asks for a tool first, and answers once it has a result
	jq -c 'if any(.messages[]; .role == "tool")
		then {text: "There are \(.messages[-1].content[0].output) files.", toolCalls: []}
		else {text: "", toolCalls: [{toolCallId: "1", toolName: "count", input: {dir: "."}}]} end'
}

while :; do
	thread message list --json | jq -c '{model: "stub", messages: .}' >"$tmp/request"
	model <"$tmp/request" >"$tmp/response"
	jq -c '{request: .}' "$tmp/request" >"$tmp/input"
	jq -c '{response: .}' "$tmp/response" >"$tmp/output"
	thread run step --type model_call --input "$tmp/input" --output "$tmp/output" >"$tmp/step"

	if [ "$(jq '.toolCalls | length' "$tmp/response")" = 0 ]; then
		thread message add --role assistant --content "$(jq -r .text "$tmp/response")" >/dev/null
		exit
	fi
	jq -c '[.toolCalls[] | {type: "tool-call"} + .]' "$tmp/response" | thread message add --role assistant --content-file - >/dev/null
	ls | wc -l | tr -d ' ' >"$tmp/result" # the tool
	thread run tool --name count --source native --step "$(cat "$tmp/step")" --response "$tmp/result" >/dev/null
	jq -c '[{type: "tool-result", toolCallId: "1", toolName: "count", output: .}]' "$tmp/result" | thread message add --role tool --content-file - >/dev/null

	[ "${CRASH-}" != 1 ] || kill -9 $PPID # the worker dies in the middle
	[ "${CRASH-}" != 1 ] || exit 1
done
