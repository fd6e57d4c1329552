#!/bin/sh
# run.sh DIR: one agent asks another one, waits for the answer, and finds a second one later.
set -eu
mkdir -p "$1" && cd "$1"
export THREAD_DIR="$PWD/mailbox" THREAD_DISPATCH=none
warden=internal:dm:default:warden maintainer=internal:dm:default:maintainer
thread init "$THREAD_DIR" >/dev/null
cat > answer.sh <<END # an agent, in earnest: its model gets the question on stdin
case \$(cat) in *disk*) answer='81% used' ;; *) answer='I do not know' ;; esac
exec thread push --source $warden --type answer --content "\$answer" --reply-to "\$THREAD_EVENT_ID" --quiet
END
thread subscribe --consumer warden --type question --handler "thread consume --content-only -- sh '$PWD/answer.sh'" >/dev/null
thread consume --consumer warden --content-only --follow -- sh ./answer.sh &
trap 'kill $!; wait' EXIT
# Request and reply.
thread ask --source $maintainer --type question --content "how full is the disk?" --content-only --timeout 1m
# A letter, and its reply later.
id=$(thread push --source $maintainer --type question --content "who moved the logs?")
thread tail --last-event-id "$id" --limit 1 --timeout 1m --json --filter "json_valid(content) AND content ->> 'reply_to' = $id" |
  sed 's/.*"content":\(.*\)}$/\1/'
thread stats --by type
