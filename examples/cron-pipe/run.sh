#!/bin/sh
# run.sh DIR: the two lines of the crontab, as cron plays them: the writer twice, the
# reader three times, of which the first fails and the last finds nothing.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && cd "$1"
thread=$(command -v thread)
fill() { sed "s|@dir|'$PWD'|g; s|@thread|'$thread'|g" "$here/$1"; }
fill report.sh > report.sh
fill crontab | sed 's/--lease 1h/--lease 1ms/' > crontab # the reader comes again before an hour is over
cron() { # cron N: line N, without its five fields of time
  line=$(sed -n "$1p" crontab | sed 's/^\([^ ]* *\)\{5\}//; s/^df .* | tail -n +2/printf "81%% \/srv\\n12%% \/srv\/www\\n"/')
  env -i HOME="$PWD" LOGNAME=me SHELL=/bin/sh PATH=/usr/bin:/bin sh -c "$line"
}
thread init pipe >/dev/null
thread subscribe --thread pipe --consumer nightly --pull >/dev/null
cron 1
cron 1
mv report.sh away
cron 2 2>/dev/null
echo "the first night failed: $(wc -l < page) lines were out"
mv away report.sh
cron 2
cron 2
test -s page || echo "the third night: nothing to take"
cat report.txt
