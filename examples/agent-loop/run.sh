#!/bin/sh
# run.sh DIR: plays the example in the new directory DIR: a session asks something, the
# worker is killed in the middle, another one recovers the run and finishes it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir "$1"
cd "$1"
thread init inbox >/dev/null
THREAD_DIR=$PWD/inbox
export THREAD_DIR

thread session start --id S --subject user:7 --agent counter >/dev/null
thread message add --session S --role user --content "How many files are here?" >/dev/null
thread run enqueue --id R --session S --trigger message >/dev/null

CRASH=1 thread run work --drain -- "$here/agent.sh" || echo "the worker died with exit code $?"
thread run recover --strategy requeue_running
thread run work --drain -- "$here/agent.sh"

thread message list --session S
thread run show R
thread history audit tools
