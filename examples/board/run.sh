#!/bin/sh
# run.sh DIR: measurements are kept while the link is down, and go out in order, once
# each, when it is up.
set -eu
mkdir -p "$1" && cd "$1"
export THREAD_DIR="$PWD/board" THREAD_DISPATCH=none
thread init "$THREAD_DIR" >/dev/null
thread init "$PWD/center" >/dev/null
# The link is a file here; in earnest: ssh center thread push … --dedupe-key
cat > send.sh <<END
test -e '$PWD/link' || exit 75 # not a failure: kept, and tried again
exec thread push --thread '$PWD/center' --source board:7 --type measurement --content-file - --dedupe-key "board:7:\$THREAD_EVENT_ID" --quiet
END
thread subscribe --consumer uplink --type measurement \
  --handler "thread consume --content-only -- sh '$PWD/send.sh'" >/dev/null
for value in 20.5 20.7 21.0; do
  thread push --source sensor --type measurement --content "$value" --quiet
done
thread consume --consumer uplink --content-only --once -- sh ./send.sh 2>/dev/null || true
echo "at the center without the link: $(thread peek --thread center --last-event-id 0 | wc -l)"
touch link
thread consume --consumer uplink --content-only -- sh ./send.sh
thread peek --thread center --last-event-id 0 | sed 's/.*"content":\("[^"]*"\).*/\1/'
