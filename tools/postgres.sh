#!/usr/bin/env bash
# tools/postgres.sh COMMAND...
#
# Runs a command with a PostgreSQL server of its own, in a temporary directory, whose
# socket THREAD_POSTGRES names. Both are gone when the command ends.
set -euo pipefail
if (($# == 0)); then
	echo "usage: tools/postgres.sh COMMAND..." >&2
	exit 2
fi
bin=$(compgen -G '/usr/lib/postgresql/*/bin' | sort -V | tail -n 1) || { echo "PostgreSQL is missing: install the package postgresql" >&2; exit 1; }
as=()
if ((EUID == 0)); then # the server refuses to run as root
	as=(runuser -u postgres --)
fi
# Short, because the name of a socket has at most 107 bytes.
dir=$("${as[@]}" mktemp -d /tmp/thread-pg.XXXXXX)
trap '(cd / && "${as[@]}" "$bin/pg_ctl" -D "$dir/data" -m immediate -s stop) || true; rm -rf "$dir"' EXIT
(
	cd /
	"${as[@]}" "$bin/initdb" -D "$dir/data" -U postgres -A trust -E UTF8 >/dev/null
	"${as[@]}" "$bin/pg_ctl" -D "$dir/data" -l "$dir/log" -w -s -o "-c listen_addresses='' -k $dir" start ||
		{ cat "$dir/log" >&2; exit 1; }
) </dev/null
THREAD_POSTGRES="host=$dir user=postgres dbname=postgres" "$@"
