#!/usr/bin/env bash
# tools/release.sh [DIR]
#
# Builds what is published for the tag that the last commit has, vMAJOR.MINOR.PATCH, into
# DIR (release): what tools/dist.sh makes, CHANGES.md, the part of CHANGELOG.md about that
# version, and provenance.json, which says from which commit, with which Go and by which
# command every file was built. SHA256SUMS covers them all. The same commit and Go give the same
# bytes. RELEASE_TARGETS limits the targets. It refuses a tree with changes, a commit without a tag, and a version
# of which CHANGELOG.md says nothing, and a patch that breaks users of the library; nothing is built then.
set -euo pipefail
cd "$(dirname "$0")/.."
fail() {
	echo "Error: $1 - $2" >&2
	exit 1
}
out=${1:-release}
[[ -z $(git status --porcelain) ]] || fail "there are changes that are not committed" "commit or stash them"
tag=$(git describe --tags --exact-match --match 'v*' 2>/dev/null) || fail "the commit has no version tag" "tag it, for example git tag v0.1.0"
[[ $tag =~ ^v[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "$tag is no semantic version" "tag it as v1.2.3"
version=${tag#v}
changes=$(awk -v head="## [$version]" 'index($0, "## [") == 1 { on = index($0, head) == 1; next } on' CHANGELOG.md)
[[ $changes == *[![:space:]]* ]] || fail "CHANGELOG.md has no section [$version]" "give what is unreleased that name, with the date"
[[ $version == *.0 ]] || ./tools/api.sh >&2 || fail "$tag is a patch, and breaks users of the library" "give it a new minor number"
[[ ! -e $out ]] || fail "$out is there already" "remove it, or name another directory"

read -ra targets <<<"${RELEASE_TARGETS-}"
work=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
VERSION=$version ./tools/dist.sh -o "$work" "${targets[@]}"
printf '# %s\n\n%s\n' "$tag" "$(sed '/./,$!d' <<<"$changes")" >"$work/CHANGES.md"
(
	cd "$work"
	printf '{\n  "version": "%s",\n  "commit": "%s",\n  "tree": "%s",\n  "go": "%s",\n  "goexperiment": "%s",\n  "source_date_epoch": %s,\n  "command": "make release%s",\n  "files": [\n' \
		"$version" "$(git rev-parse HEAD)" "$(git rev-parse 'HEAD^{tree}')" "$(go env GOVERSION)" "$(go env GOEXPERIMENT)" "$(git log -1 --format=%ct)" \
		"${RELEASE_TARGETS:+ RELEASE_TARGETS='$RELEASE_TARGETS'}" >provenance.json.new
	find . -maxdepth 1 -type f ! -name 'SHA256SUMS*' ! -name 'provenance.json*' -printf '%f\n' | LC_ALL=C sort | xargs -d '\n' sha256sum |
		sed -E 's/^([0-9a-f]+)  (.*)$/    {"name": "\2", "sha256": "\1"},/; $s/,$//' >>provenance.json.new
	printf '  ]\n}\n' >>provenance.json.new
	mv provenance.json.new provenance.json
	find . -maxdepth 1 -type f ! -name 'SHA256SUMS*' -printf '%f\n' | LC_ALL=C sort | xargs -d '\n' sha256sum >SHA256SUMS.new
	mv SHA256SUMS.new SHA256SUMS
)
mv "$work" "$out"
trap - EXIT
echo "$out: $tag, $(wc -l <"$out/SHA256SUMS") files"
