#!/usr/bin/env bash
# tools/api.sh
#
# Compares the packages that are promised to users of the library with those of the last
# version's tag, or, of a commit that is a version itself, with the version before it. What
# is gone or has changed in a way that breaks its users is printed, with exit code 1: the next version
# is then no patch, and CONTRIBUTING.md says what goes before. APIDIFF names another program
# than the one that is built here.
set -euo pipefail
cd "$(dirname "$0")/.."
packages=(event filter engine handlers history lane outbox worker)

from=HEAD
if [[ -z $(git status --porcelain) ]] && git describe --tags --exact-match --match 'v*' >/dev/null 2>&1; then
	from=HEAD^
fi
tag=$(git describe --tags --abbrev=0 --match 'v*' "$from" 2>/dev/null) || {
	echo "api: there is no version before this one: nothing to compare with"
	exit 0
}
work=$(mktemp -d)
trap 'git worktree remove --force "$work/tag" 2>/dev/null || true; rm -rf "$work"' EXIT
git worktree add -q --detach "$work/tag" "$tag"
if [[ -z ${APIDIFF-} ]]; then
	GOBIN=$work go install golang.org/x/exp/cmd/apidiff@v0.0.0-20260908205506-85c1c2202aba
	APIDIFF=$work/apidiff
fi
: >"$work/found"
for package in "${packages[@]}"; do
	[[ -d $work/tag/$package ]] || continue # it is new
	if [[ ! -d $package ]]; then
		echo "$package: removed" >>"$work/found"
		continue
	fi
	(cd "$work/tag" && "$APIDIFF" -w "$work/api" "$(go list -m)/$package")
	"$APIDIFF" -incompatible "$work/api" "$(go list -m)/$package" >"$work/one"
	sed "s|^|$package: |" "$work/one" >>"$work/found"
done
if [[ -s $work/found ]]; then
	cat "$work/found"
	echo "Error: this is not compatible with $tag - bring it back, or give the next version a new minor number" >&2
	exit 1
fi
echo "api: compatible with $tag"
