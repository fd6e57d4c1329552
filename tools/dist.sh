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
here=$PWD

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
# nested MODULE FILE [FLAG...]: thread-bridge or thread-net, which are of modules of their own.
nested() {
	local nested=$1 file=$2
	shift 2
	(cd "$nested" && go build "$@" -trimpath -buildvcs=false -ldflags "-s -w -funcalign=4 -X $module/internal/cli.stamped=$VERSION" -o "$file" "./cmd/thread-$nested")
}
# The flags for the smallest hosts.
eval "small=($(make -s small-flags))"
eval "lite=($(make -s lite-flags))" # and for the program of thread-lite

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
		if [[ $GOOS == linux ]]; then
			build thread "$out/${t//\//-}/thread-lite" "${lite[@]}"
			sized "$t thread-lite" "$out/${t//\//-}/thread-lite"
		fi
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
nested bridge "$work/tools/thread-bridge"
"$work/tools/thread-bridge" __man "$common/man-bridge"
gzip -9n "$common"/man-bridge/*.1
mkdir "$common/man-gz"
for page in "$common"/man/*.1; do
	gzip -9n <"$page" >"$common/man-gz/${page##*/}.gz"
done
mkdir "$common/man7-gz"
for page in packaging/man/*.7; do
	cp "$page" "$common/man/"
	gzip -9n <"$page" >"$common/man7-gz/${page##*/}.gz"
done
cp -r internal/verb/core/completion packaging/systemd packaging/openrc packaging/procd packaging/prometheus packaging/grafana packaging/account.sh docs LICENSE README.md CHANGELOG.md "$common/"
find "$common" -type d -exec chmod 755 {} + -o -type f -exec chmod 644 {} +
chmod 755 "$common"/openrc/thread-{dispatch,serve} "$common"/procd/thread-{dispatch,serve}

# archive NAME: everything in one directory NAME.
archive() {
	local name=$1 dir=$work/archive/$1 program
	mkdir -p "$dir"
	cp -rp "$common"/{man,completion,docs,grafana,LICENSE,README.md,CHANGELOG.md} "$dir/"
	mkdir -p "$dir/prometheus"
	cp -p "$common/prometheus/serve-alerts.yaml" "$dir/prometheus/"
	[[ $name == *_linux_* ]] && cp -rp "$common"/{systemd,openrc,procd} "$dir/"
	for program in "${programs[@]}"; do
		cp -p "$common/$program" "$dir/"
	done
	find "$dir" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
	tar -C "$work/archive" --sort=name --owner=0 --group=0 --numeric-owner --format=ustar -cf - "$name" |
		gzip -9n >"$out/$name.tar.gz"
}

# packages NAME ARCH: .deb, .rpm and .apk, with every program and with thread alone; ARCH
# is nfpm's word. Debian has one architecture for ARMv6 (Raspbian) and ARMv7: where both
# are built, the .deb is that of the first, which runs on both.
deb_of() { [[ $1 != arm7 || " ${targets[*]} " != *" linux/arm/6 "* ]]; }
packages() {
	build thread "$common/thread-lite" "${lite[@]}"
	chmod 755 "$common/thread-lite"
	"$work/tools/sbom" "$common/thread-lite" "$VERSION" >"$out/$1-lite.cdx.json"
	sized "$1 thread-lite" "$common/thread-lite"
	find "$common" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
	local format config
	{
		cat packaging/nfpm.yaml
		for program in "${programs[@]:1}"; do
			echo "  - {src: $program, dst: /usr/libexec/thread/$program}"
		done
	} >"$work/whole.yaml"
	sed 's/^name: thread$/name: thread-lite/; s/{src: thread,/{src: thread-lite,/; /thread-serve/d' packaging/nfpm.yaml >"$work/lite.yaml"
	printf '%s\n' 'conflicts: [thread]' 'provides: [thread]' >>"$work/lite.yaml"
	printf '%s\n' 'conflicts: [thread-lite]' >>"$work/whole.yaml"
	# OpenWrt: the program and its services, without what there is no room for.
	sed '/src: \(man\|docs\|README\|completion\|systemd\|openrc\)/d' "$work/lite.yaml" >"$work/edge.yaml"
	(cd "$common" && PACKAGE_ARCH=$2 "$work/tools/nfpm" package --config "$work/edge.yaml" --packager ipk --target "$out" >/dev/null)
	for config in whole lite; do
		for format in deb rpm apk; do
			[[ $format != deb ]] || deb_of "$2" || continue
			(cd "$common" && PACKAGE_ARCH=$2 "$work/tools/nfpm" package --config "$work/$config.yaml" \
				--packager "$format" --target "$out" >/dev/null)
		done
	done
	rm "$common/thread-lite"
}

# bridges NAME ARCH: thread-bridge with all brokers and, for the edge, with MQTT, NATS
# and Redis: the programs and their packages.
bridges() {
	local edition flags_of format
	for edition in bridge bridge-edge; do
		flags_of=("${flags[@]}")
		[[ $edition == bridge ]] || flags_of+=(-tags edge,lite) # without expr
		nested bridge "$common/thread-bridge" "${flags_of[@]}"
		chmod 755 "$common/thread-bridge"
		"$work/tools/sbom" "$common/thread-bridge" "$VERSION" >"$out/$1-$edition.cdx.json"
		cp -p "$common/thread-bridge" "$out/$1_$edition"
		sized "$1 $edition" "$common/thread-bridge"
		sed "s/^name: .*/name: thread-$edition/" packaging/nfpm-bridge.yaml >"$work/bridge.yaml"
		[[ $edition == bridge ]] && echo 'conflicts: [thread-bridge-edge]' >>"$work/bridge.yaml"
		[[ $edition == bridge ]] || printf '%s\n' 'conflicts: [thread-bridge]' 'provides: [thread-bridge]' >>"$work/bridge.yaml"
		find "$common" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
		for format in deb rpm apk ipk; do
			[[ $format != deb ]] || deb_of "$2" || continue
			[[ $edition == bridge-edge || $format != ipk ]] || continue # OpenWrt has little room
			(cd "$common" && PACKAGE_ARCH=$2 "$work/tools/nfpm" package --config "$work/bridge.yaml" --packager "$format" --target "$out" >/dev/null)
		done
		rm "$common/thread-bridge"
	done
}

# servers NAME ARCH: thread-net and its packages.
servers() {
	local format
	nested net "$common/thread-net" "${flags[@]}"
	chmod 755 "$common/thread-net"
	"$work/tools/sbom" "$common/thread-net" "$VERSION" >"$out/$1-net.cdx.json"
	cp -p "$common/thread-net" "$out/$1_net"
	sized "$1 net" "$common/thread-net"
	find "$common" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
	for format in deb rpm apk; do
		[[ $format != deb ]] || deb_of "$2" || continue
		(cd "$common" && PACKAGE_ARCH=$2 "$work/tools/nfpm" package --config "$here/packaging/nfpm-net.yaml" --packager "$format" --target "$out" >/dev/null)
	done
	rm "$common/thread-net"
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
	"$work/tools/sbom" "$out/${name}_bundled" "$VERSION" >"$out/$name-bundled.cdx.json"
	sized "$t bundled" "$out/${name}_bundled"
	archive "$name"
	if [[ $GOOS == linux ]]; then
		packages "$name" "$GOARCH$variant"
		bridges "$name" "$GOARCH$variant"
		servers "$name" "$GOARCH$variant"
	fi
	for program in "${programs[@]}"; do
		rm "$common/$program"
	done
done
(cd "$out" && find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%f\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
