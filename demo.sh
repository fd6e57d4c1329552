#!/bin/sh
# The main job, played with the real program on real input: a thread, two
# subscriptions, a batch of 12,000 events, handlers that run by themselves until
# nothing is left. What they received is compared with the input. Needs the
# program (make demo builds it) and the usual POSIX tools; uses jq when present.
#
# usage: demo.sh <path of the program>
set -eu

repo=$(cd "$(dirname "$0")" && pwd)
input=$repo/testdata/git-activity.ndjson
program=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
seconds=60 # how long the handlers may take

work=$(mktemp -d)
mkdir "$work/bin"
ln -s "$program" "$work/bin/thread"
PATH=$work/bin:$PATH
export PATH
THREAD_DISPATCH=spawn # by ourselves, also where a notifier is installed
export THREAD_DISPATCH
inbox=$work/inbox

fail() {
	echo "demo: FAILED: $*" >&2
	echo "demo: everything is left in $work" >&2
	[ ! -f "$inbox/logs/thread.log" ] || tail -n 20 "$inbox/logs/thread.log" >&2
	exit 1
}
say() { printf '\n$ %s\n' "$*"; }

# The ids that a filter must select are the numbers of the input's lines, since
# an empty thread gives the ids 1, 2, 3 …
expect() { # expect <jq condition> <grep pattern> <second grep pattern, any case>
	if command -v jq >/dev/null; then
		jq -r "if $1 then input_line_number else empty end" "$input"
	else
		grep -n "$2" "$input" | grep -i "$3" | cut -d: -f1
	fi
}
expect '.type == "message" and (.source | startswith("external:"))' \
	'"type":"message"' '"source":"external:' >"$work/reviewer.expected"
expect '.subtype == "toolcall" and (.content | test("readme"; "i"))' \
	'"subtype":"toolcall"' 'readme' >"$work/librarian.expected"

# What a consumer runs: pop, work, pop with the last id, until nothing comes.
cat >"$work/handler" <<'HANDLER'
#!/bin/sh
set -eu
last=$THREAD_LAST_ACKED_ID
page=$1.page
while :; do
	thread pop --thread "$THREAD_DIR" --consumer "$THREAD_CONSUMER" --last-event-id "$last" --limit 500 >"$page"
	[ -s "$page" ] || break
	cat "$page" >>"$1"
	last=$(tail -n 1 "$page" | sed 's/^{"id":\([0-9]*\),.*/\1/')
done
HANDLER
chmod +x "$work/handler"

say thread init "$inbox"
thread init "$inbox"
say "thread subscribe … reviewer and librarian, each with a filter"
thread subscribe --thread "$inbox" --consumer reviewer --handler "$work/handler $work/reviewer.got" \
	--filter "type = 'message' AND source LIKE 'external:%'"
thread subscribe --thread "$inbox" --consumer librarian --handler "$work/handler $work/librarian.got" \
	--filter "subtype = 'toolcall' AND content LIKE '%readme%'"

# at_end <consumer>: has its progress reached the last id it must see?
at_end() {
	thread info --thread "$inbox" | sed -n "/^  - $1\$/,/last_acked_id/s/.*last_acked_id: //p" |
		grep -qx "$(tail -n 1 "$work/$1.expected")"
}
wait_for_end() {
	deadline=$(($(date +%s) + seconds))
	until at_end reviewer && at_end librarian; do
		[ "$(date +%s)" -lt "$deadline" ] || {
			thread info --thread "$inbox" >&2
			fail "the consumers are not at their end after $seconds s"
		}
		sleep 0.1
	done
}
# compare <consumer>: exactly the expected events, in order, each once.
compare() {
	sed 's/^{"id":\([0-9]*\),.*/\1/' "$work/$1.got" >"$work/$1.ids"
	diff "$work/$1.expected" "$work/$1.ids" >"$work/$1.diff" || {
		head -n 20 "$work/$1.diff" >&2
		fail "$1 did not receive exactly the matching events (< expected, > received)"
	}
	echo "$1: $(grep -c . <"$work/$1.ids") events, as counted in the input"
}

say "thread push --thread $inbox --batch --quiet < testdata/git-activity.ndjson"
thread push --thread "$inbox" --batch --quiet <"$input"
wait_for_end

say "thread push … one more event"
id=$(thread push --thread "$inbox" --source external:git:demo:channel:main:alice --type message --content 'one more')
lines=$(grep -c . <"$input")
[ "$id" = $((lines + 1)) ] || fail "the event after $lines has the id $id"
echo "$id" >>"$work/reviewer.expected"
wait_for_end

say thread info --thread "$inbox"
thread info --thread "$inbox"
echo
compare reviewer
compare librarian
cat "$inbox"/events-*.jsonl "$inbox/events.jsonl" | sed 's/^{"id":\([0-9]*\),.*/\1/' >"$work/jsonl.ids"
seq 1 "$id" | diff - "$work/jsonl.ids" >"$work/jsonl.diff" || fail "events.jsonl and its rotated files do not hold 1 to $id"
echo "events.jsonl and its rotated file: $id lines, in order"
# The last supervisor may just be writing that it ended.
rm -rf "$work" 2>/dev/null || { sleep 1 && rm -rf "$work"; }
echo "demo: ok"
