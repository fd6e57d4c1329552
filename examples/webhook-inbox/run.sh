#!/bin/sh
# run.sh DIR: two deliveries, one of them sent twice, are worked on once each.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && cd "$1"
export THREAD_DIR="$PWD/inbox" THREAD_DISPATCH=none
thread init "$THREAD_DIR" >/dev/null
printf 'cat >> "%s/done.txt"; echo >> "%s/done.txt"\n' "$PWD" "$PWD" > work.sh
thread subscribe --consumer worker --source 'webhook:*' --handler "thread consume --content-only -- sh '$PWD/work.sh'" >/dev/null
for delivery in 1 2 2; do
  printf '{"n":%s}' "$delivery" | HTTP_X_SENDER=shop HTTP_X_DELIVERY_ID="d$delivery" "$here/hook.sh" | head -n 1
done
thread consume --consumer worker --content-only -- sh work.sh # what a push starts by itself, as the handler
cat done.txt
