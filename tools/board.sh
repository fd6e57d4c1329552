#!/bin/sh
# tools/board.sh PROGRAM|PACKAGE.deb|PACKAGE.ipk
#
# Tries thread as on a small board: in a root that holds it and a static BusyBox, is
# mounted read-only, and has neither /proc nor a home directory, and of /dev only null;
# the thread lies on a data partition. Needs root, for chroot and mounts of its own, which nobody else
# sees and which end with it, and busybox-static. A package for another processor needs
# qemu-user-static and its entry in binfmt_misc.
set -eu
[ $# = 1 ] && [ -f "$1" ] || { echo "usage: tools/board.sh PROGRAM|PACKAGE" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "tools/board.sh: needs root, for chroot and mounts" >&2; exit 2; }
busybox=$(command -v busybox) || { echo "tools/board.sh: needs busybox-static" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root/bin" "$root/usr/bin" "$root/data" "$root/dev"
touch "$root/dev/null"
case $1 in
*.deb) dpkg-deb -x "$1" "$root" ;;
*.ipk) # as opkg reads it
	[ "$(tar -xzOf "$1" ./debian-binary)" = 2.0 ] || { echo "board: $1 is of another format" >&2; exit 1; }
	tar -xzOf "$1" ./control.tar.gz | tar -xz -C "$work"
	for field in Package Version Architecture; do
		grep -q "^$field: [^ ]" "$work/control" || { echo "board: the package has no $field" >&2; exit 1; }
	done
	sh -n "$work/postinst"
	tar -xzOf "$1" ./data.tar.gz | tar -xz -C "$root"
	while read -r name; do
		[ -f "$root$name" ] || { echo "board: $name is no file of the package" >&2; exit 1; }
	done <"$work/conffiles"
	;;
*) cp "$1" "$root/usr/bin/thread" ;;
esac
cp "$busybox" "$root/bin/busybox"
for applet in $(busybox --list); do
	[ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
done

cat >"$root/tour" <<'END'
set -eu
fail() { echo "board: $*" >&2; cat /data/inbox/logs/thread.log >&2; exit 1; }
touch /probe 2>/dev/null && fail "the root is not read-only"
test -e /proc/self && fail "there is a /proc"
thread version
thread init /data/inbox
cd /data
export THREAD_DIR=/data/inbox
# What a push starts runs on its own.
thread subscribe --consumer uplink --type measurement -- sh -c 'cat >>/data/sent; echo >>/data/sent'
thread push --source sensor --type measurement --content 20.5 --quiet
n=0
until grep -q '"content":"20.5"' sent 2>/dev/null; do
	n=$((n + 1)); [ $n -lt 300 ] || fail "the handler did not run"
	sleep 0.1 # BusyBox has nothing that waits for a file
done
# A pipe between two jobs of cron.
thread subscribe --consumer night --pull
seq 1 1000 | thread push --lines --quiet
came=0 # a slow host gives out fewer at a time
while n=$(thread next --consumer night --limit 2000 --ack | wc -l) && [ "$n" -gt 0 ]; do
	came=$((came + n))
done
[ "$came" = 1001 ] || fail "$came of 1001 came"
thread tail >/dev/null
thread info >/dev/null
thread dispatch
thread dead list
thread check | grep -q '^Events: 1001' || fail "check"
thread prune --keep-last 10 --force
thread compact
thread check >/dev/null
thread filter test "type = 'line'" >/dev/null
thread schedule add --name tick --when '@every 1h' --source cron --type tick
thread schedule list >/dev/null
echo "board: all well"
END
export root
unshare -m sh -eu -c '
mount --make-rprivate /
mount --bind "$root" "$root"
mount --bind /dev/null "$root/dev/null"
mount -t tmpfs -o size=64m data "$root/data"
mount -o remount,bind,ro "$root"
exec chroot "$root" /bin/env -i PATH=/usr/bin:/bin /bin/sh /tour
'
