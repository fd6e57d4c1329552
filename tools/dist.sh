#!/usr/bin/env bash
# tools/dist.sh [-p] [-o DIR] [TARGET...]
#
# Builds what is published: for each target the static, stripped programs, in an
# archive with manual pages, documents, completions and units, with lists of what
# went into them (SBOM); the single file that has every verb; for Linux also the
# .deb, .rpm and .apk, whole and with thread alone. The same source, Go version and
# VERSION give the same bytes. A target is os/arch or os/arch/variant, as
# linux/arm/6; without any all are built. With -p only the programs are built, as
# DIR/linux-arm-6/thread, and nothing else of it.
set -euo pipefail
cd "$(dirname "$0")/.."

# nfpm 2.45 is the last one whose modules the proxy serves whole.
NFPM=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.0
ALL="linux/amd64 linux/386 linux/arm/5 linux/arm/6 linux/arm/7 linux/arm64 linux/riscv64
	linux/mips linux/mipsle linux/ppc64le linux/s390x
	darwin/amd64 darwin/arm64 freebsd/amd64"

out=dist programs_only=
while getopts o:p option; do
	case $option in
	o) out=$OPTARG ;;
	p) programs_only=yes ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
mkdir -p "$out"
out=$(cd "$out" && pwd)
read -ra targets <<<"${*:-${ALL//[$'\n\t']/ }}"

# v1.2.3 is 1.2.3; what comes before the first tag, or after one, is a
# pre-release that sorts by the number of commits.
if [[ -z ${VERSION-} ]]; then
	if tag=$(git describe --tags --exact-match --match 'v*' 2>/dev/null); then
		VERSION=${tag#v}
	else
		tag=$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || echo v0.0.0)
		VERSION=${tag#v}-git$(git rev-list --count HEAD)+g$(git rev-parse --short=12 HEAD)
	fi
fi
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || echo 0)}"
export VERSION SOURCE_DATE_EPOCH CGO_ENABLED=0 TZ=UTC GOFLAGS=-mod=readonly
export PACKAGE_VERSION=${VERSION%%+*}

# build COMMAND FILE [FLAG...]: for GOOS, GOARCH and the rest of the environment.
module=$(go list -m)
build() {
	local command=$1 file=$2
	shift 2
	go build "$@" -trimpath -buildvcs=false -ldflags "-s -w -funcalign=4 -X $module/internal/cli.stamped=$VERSION" -o "$file" "./cmd/$command"
}
# The flags for the smallest hosts.
eval "small=($(make -s small-flags))"

# target OS/ARCH[/VARIANT]: prepares the environment and flags for build.
target() {
	IFS=/ read -r GOOS GOARCH variant <<<"$1"
	export GOOS GOARCH
	unset GOARM GOMIPS
	flags=() programs=(thread thread-serve thread-history thread-outbox thread-sqlite)
	case $GOARCH in
	arm)
		export GOARM=$variant
		flags=("${small[@]}")
		;;
	mips*)
		# Routers have no floating point unit; modernc.org/sqlite does not know them.
		export GOMIPS=softfloat
		flags=("${small[@]}") programs=(thread thread-serve thread-history thread-outbox)
		;;
	esac
}

# sized TARGET PROGRAM: says how large it is.
sized() { printf '%-34s %9d bytes\n' "$1" "$(stat -c %s "$2")"; }

if [[ $programs_only ]]; then
	for t in "${targets[@]}"; do
		target "$t"
		mkdir -p "$out/${t//\//-}"
		for program in "${programs[@]}"; do
			build "$program" "$out/${t//\//-}/$program" "${flags[@]}"
			sized "$t $program" "$out/${t//\//-}/$program"
		done
	done
	exit
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tree" "$work/tools"
build thread "$work/tools/thread" -tags bundled
go build -o "$work/tools/sbom" ./tools/sbom
GOFLAGS='' GOBIN=$work/tools go install "$NFPM"

# What is the same for every target.
common=$work/tree
"$work/tools/thread" __man "$common/man"
mkdir "$common/man-gz"
for page in "$common"/man/*.1; do
	gzip -9n <"$page" >"$common/man-gz/${page##*/}.gz"
done
cp -r internal/verb/core/completion packaging/systemd packaging/openrc packaging/procd packaging/account.sh docs LICENSE README.md CHANGELOG.md "$common/"
find "$common" -type d -exec chmod 755 {} + -o -type f -exec chmod 644 {} +
chmod 755 "$common"/openrc/thread-{dispatch,serve} "$common"/procd/thread-*

# archive NAME: everything in one directory NAME.
archive() {
	local name=$1 dir=$work/archive/$1 program
	mkdir -p "$dir"
	cp -rp "$common"/{man,completion,docs,LICENSE,README.md,CHANGELOG.md} "$dir/"
	[[ $name == *_linux_* ]] && cp -rp "$common"/{systemd,openrc,procd} "$dir/"
	for program in "${programs[@]}"; do
		cp -p "$common/$program" "$dir/"
	done
	find "$dir" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
	tar -C "$work/archive" --sort=name --owner=0 --group=0 --numeric-owner --format=ustar -cf - "$name" |
		gzip -9n >"$out/$name.tar.gz"
}

# packages ARCH: .deb, .rpm and .apk, with every program and with thread alone; ARCH
# is nfpm's word. Debian has one architecture for ARMv6 (Raspbian) and ARMv7: the
# programs for the first run on both.
packages() {
	find "$common" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
	local format config
	{
		cat packaging/nfpm.yaml
		for program in "${programs[@]:1}"; do
			echo "  - {src: $program, dst: /usr/libexec/thread/$program}"
		done
	} >"$work/whole.yaml"
	sed 's/^name: thread$/name: thread-lite/; /thread-serve/d' packaging/nfpm.yaml >"$work/lite.yaml"
	printf '%s\n' 'conflicts: [thread]' 'provides: [thread]' >>"$work/lite.yaml"
	printf '%s\n' 'conflicts: [thread-lite]' >>"$work/whole.yaml"
	for config in whole lite; do
		for format in deb rpm apk; do
			[[ $1 != arm7 || $format != deb ]] || continue
			(cd "$common" && PACKAGE_ARCH=$1 "$work/tools/nfpm" package --config "$work/$config.yaml" \
				--packager "$format" --target "$out" >/dev/null)
		done
	done
}

for t in "${targets[@]}"; do
	target "$t"
	name=thread_${VERSION%%+*}_${GOOS}_$GOARCH${variant:+v$variant}
	for program in "${programs[@]}"; do
		build "$program" "$common/$program" "${flags[@]}"
		chmod 755 "$common/$program"
		"$work/tools/sbom" "$common/$program" "$VERSION" >"$out/$name${program#thread}.cdx.json"
		sized "$t $program" "$common/$program"
	done
	build thread "$out/${name}_bundled" -tags bundled "${flags[@]}"
	sized "$t bundled" "$out/${name}_bundled"
	archive "$name"
	[[ $GOOS == linux ]] && packages "$GOARCH$variant"
	for program in "${programs[@]}"; do
		rm "$common/$program"
	done
done
(cd "$out" && find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%f\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
