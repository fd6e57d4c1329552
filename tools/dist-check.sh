#!/usr/bin/env bash
# tools/dist-check.sh TARGET...
#
# Builds what is published for each target twice and compares: from this
# directory and from a copy elsewhere, the second time with nothing cached and as
# if it were another day. Only the dates of the source may matter.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ -n $(git status --porcelain) ]]; then
	echo "dist-check: compares what is committed; there are changes that are not" >&2
	exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

./tools/dist.sh -o "$work/one" "$@"

git clone -q --no-hardlinks . "$work/elsewhere/deeper"
(
	cd "$work/elsewhere/deeper"
	GOCACHE=$work/cache ./tools/dist.sh -o "$work/two" "$@"
)
diff -u "$work/one/SHA256SUMS" "$work/two/SHA256SUMS"
echo "the same bytes twice: $(wc -l <"$work/one/SHA256SUMS") files"
