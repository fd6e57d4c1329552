#!/bin/sh
# run.sh DIR: of three builds the one that failed on main is announced.
set -eu
mkdir -p "$1" && cd "$1"
export THREAD_DIR="$PWD/ci" THREAD_DISPATCH=none
thread init "$THREAD_DIR" >/dev/null
printf 'printf "build failed: %%s\\n" "$(cat)" >> "%s/announced.txt"\n' "$PWD" > notify.sh # curl to a chat, mail, …
thread subscribe --consumer chat --type build --subtype failed \
  --filter "json_valid(content) AND content ->> '\$.branch' = 'main'" \
  --handler "thread consume --content-only --max-attempts 5 -- sh '$PWD/notify.sh'" >/dev/null
# The last step of a pipeline, whatever became of it:
build() { thread push --source "ci:$1" --type build --subtype "$2" --content "{\"branch\":\"$3\",\"commit\":\"$4\"}" --quiet; }
build site passed main a1
build site failed topic b2
build site failed main c3
thread consume --consumer chat --content-only --max-attempts 5 -- sh notify.sh # what a push starts by itself, as the handler
cat announced.txt
thread stats --by type,subtype
