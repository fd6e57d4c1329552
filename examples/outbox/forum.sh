#!/bin/sh
# A forum hands replies to an agent through the outbox; see README.md.
set -eu
export THREAD_DISPATCH=none # this script runs the relay itself, to show each step

thread init inbox >/dev/null
cat >agent.sh <<'END'
#!/bin/sh
# Answers replies, ignores mentions, and is down as long as there is a file "down".
read -r message
if [ -e down ]; then
	echo "the model is down" >&2
	exit 1
fi
case $THREAD_OUTBOX_EVENT_TYPE in
comment.replied)
	echo "answered $THREAD_OUTBOX_EVENT_ID (attempt $THREAD_OUTBOX_ATTEMPT)" >>agent.log
	echo '{"status":"accepted","reason":"answered"}'
	;;
*) echo '{"status":"ignored","reason":"not for me"}' ;;
esac
END
chmod +x agent.sh
thread outbox config --thread inbox --handler ./agent.sh --backoff 10ms >/dev/null

# message ID TYPE COMMENT TARGET KIND: somebody, user 12, did something.
message() {
	if command -v sqlite3 >/dev/null; then
		sqlite3 forum.db "
			CREATE TABLE IF NOT EXISTS comments (id INTEGER PRIMARY KEY, text TEXT);
			CREATE TABLE IF NOT EXISTS event_outbox (event_id TEXT, event_type TEXT, thread_id INTEGER, comment_id INTEGER,
				actor_user_id INTEGER, target_user_id INTEGER, target_user_type TEXT, status TEXT DEFAULT 'pending', error TEXT);
			BEGIN; -- the comment and the message, or neither
			INSERT INTO comments (text) VALUES ('a comment');
			INSERT INTO event_outbox (event_id, event_type, thread_id, comment_id, actor_user_id, target_user_id, target_user_type)
				VALUES ('$1', '$2', 101, $3, 12, $4, '$5');
			COMMIT;"
		thread outbox take --thread inbox --from sqlite:forum.db >/dev/null
	else
		thread outbox add --thread inbox --message "{\"event_id\":\"$1\",\"event_type\":\"$2\",\"thread_id\":101,\"comment_id\":$3,\"actor_user_id\":12,\"target_user_id\":$4,\"target_user_type\":\"$5\"}" >/dev/null
	fi
}

message evt_1 comment.replied 8801 5 agent
message evt_1 comment.replied 8801 5 agent # sent twice, handed on once
message evt_2 like.created 8801 7 human
message evt_3 mention.created 8802 5 agent
thread outbox relay --thread inbox --once

touch down
message evt_4 comment.replied 8803 5 agent
thread outbox relay --thread inbox --once 2>/dev/null
rm down
until thread outbox list --thread inbox --event-id evt_4 | grep -q processed; do
	thread outbox relay --thread inbox --once >/dev/null
done

echo "The agent:"
cat agent.log
echo "The outbox:"
thread outbox list --thread inbox | cut -f 2-5 | grep -v feedback
echo "Notifications of user 7:"
thread notifications --thread inbox --user 7 | cut -f 3-6
thread outbox stats --thread inbox
