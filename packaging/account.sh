#!/bin/sh
# Run by the packages after their files are there: makes the account that the
# services run as, and the directory for its threads. Neither is removed with the
# package, as there may be events in it.
set -e
if [ -e /etc/openwrt_release ]; then
	# Its BusyBox makes no accounts. Threads lie where /etc/thread.conf says: /var is memory.
	. /lib/functions.sh
	grep -q '^thread:' /etc/passwd || user_add thread "" "$(group_add_next thread)"
	exit
fi
if command -v systemd-sysusers >/dev/null 2>&1; then
	systemd-sysusers thread.conf
elif grep -q '^thread:' /etc/passwd; then
	:
elif command -v useradd >/dev/null 2>&1; then
	useradd --system --user-group --no-create-home --home-dir /var/lib/thread --shell /bin/false thread
else
	addgroup -S thread
	adduser -S -D -H -h /var/lib/thread -s /bin/false -G thread thread
fi
[ -d /var/lib/thread ] || install -d -m 0700 -o thread -g thread /var/lib/thread
