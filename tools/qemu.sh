#!/usr/bin/env bash
# tools/qemu.sh [-c] [ARCH...]
#
# Runs the tests, compiled for other processors, under qemu's user mode. ARCH is
# 386 (which runs by itself, or not at all: qemu cannot run Go's threads there), arm (ARMv6, 32 bits), arm64, riscv64, or s390x,
# which is big-endian and of which the core is run; without any all of them. With
# -c it is the core of all: what depends on the processor, in a minute or two each.
#
# Tests start themselves and the program again, and a kernel starts a foreign
# program only if told how (binfmt_misc). That takes root; without it, or where
# it is refused, the tests that start programs are left out, and that is said.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ $(uname -m) == x86_64 ]] || { echo "qemu: this is not an x86-64 host: nothing was run" >&2; exit 1; }

core=
if [[ ${1-} == -c ]]; then
	core=yes
	shift
fi
arches=(${*:-386 arm arm64 riscv64 s390x})
work=$(mktemp -d)
registered=()
cleanup() {
	for name in "${registered[@]}"; do
		echo -1 >"/proc/sys/fs/binfmt_misc/$name"
	done
	rm -rf "$work"
}
trap cleanup EXIT

# emulator ARCH: qemu's name of it.
emulator() {
	case $1 in
	arm64) echo qemu-aarch64-static ;;
	*) echo "qemu-$1-static" ;;
	esac
}

# register ARCH: tell the kernel to start programs of ARCH with its emulator. The
# pattern is the ELF header: class, byte order, version, then type and machine.
register() {
	local name=thread-$1 head machine
	local mask='\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00\x00'
	case $1 in
	arm) head='\x7fELF\x01\x01\x01' machine='\x02\x00\x28\x00' ;;
	arm64) head='\x7fELF\x02\x01\x01' machine='\x02\x00\xb7\x00' ;;
	riscv64) head='\x7fELF\x02\x01\x01' machine='\x02\x00\xf3\x00' ;;
	s390x) head='\x7fELF\x02\x02\x01' machine='\x00\x02\x00\x16' ;;
	esac
	[[ -e /proc/sys/fs/binfmt_misc/register ]] || mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc ||
		[[ -e /proc/sys/fs/binfmt_misc/register ]] || return 1 # another one has mounted it meanwhile
	[[ -e /proc/sys/fs/binfmt_misc/$name ]] && return 0
	# F: the emulator is opened now, so that it is found from everywhere.
	printf '%s' ":$name:M::$head"'\x00\x00\x00\x00\x00\x00\x00\x00\x00'"$machine:$mask"'\xff\xff\xff\xff:'"$(command -v "$(emulator "$1")"):F" \
		>/proc/sys/fs/binfmt_misc/register || return 1
	registered+=("$name")
}

# runs386 reports whether the kernel runs programs for 386.
runs386() {
	local status=0
	GOARCH=386 CGO_ENABLED=0 go build -o "$work/thread-386" ./cmd/thread
	"$work/thread-386" --version >/dev/null 2>&1 || status=$?
	((status != 126))
}

# What runs where. An emulated processor is some ten times slower, so that random
# tests make fewer tries. Those of starting start programs.
alone=(event index jsonlog engine filter lane internal/cli internal/verb/core)
starting=(lock internal/consume internal/dispatch compat cmd/thread)
# The core is without SQLite's oracle, which takes minutes: the filters are the same
# code everywhere but for the size of an int.
core_alone=(event index jsonlog engine filter)
core_starting=(lock cmd/thread)
core_scripts='^TestScripts$/^(init|push|pop|peek|subscribe|dispatch|numbers|paths|directory|notathread)$'
core_filters='^Test(Facts|Where|Like|Series|Ranges|SourceRange|IDRange|Refusals|ErrorPlace|Limits|Hostile|Runtime|Program|Order|Empty)'
# What is left out under emulation, and why.
#   TestTimeLimit, TestBackoffHoldsUpNobody, TestNotifier: they bound times of 0.1 to
#   2 s, in which a busy host may not even have started an emulated program.
#   concurrent: a hundred emulated programs at once take longer than the 4 s after
#   which one gives up; "with amd64" below has six, for all of them.
unsuitable='^(TestTimeLimit|TestBackoffHoldsUpNobody|TestNotifier)$|^TestScripts$/^concurrent$'

# together ARCH [EMULATOR]: the program of this host and that of ARCH at work in
# one directory. Prints what is wrong.
together() {
	local arch=$1 here=$work/thread there dir=$work/$1 i
	shift
	there=("$@" "$work/thread-$arch")
	GOARCH=$arch GOARM=6 CGO_ENABLED=0 go build -o "$work/thread-$arch" ./cmd/thread
	export THREAD_DISPATCH=none
	"$here" init "$dir" >/dev/null
	"$here" push --thread "$dir" --source here --type first --content x >/dev/null
	if [[ $arch == s390x ]]; then
		# bbolt writes integers as the host has them.
		local said
		said=$("${there[@]}" peek --thread "$dir" --last-event-id 0 2>&1) && echo "reads a database of the other byte order"
		[[ $said == *"other byte order - export it"* ]] || echo "says: $said"
		"${there[@]}" init "$dir-there" >/dev/null
		said=$("$here" peek --thread "$dir-there" --last-event-id 0 2>&1) && echo "this host reads one of the other byte order"
		[[ $said == *"other byte order - export it"* ]] || echo "this host says: $said"
		return
	fi
	# The locks of both are the same locks: no id twice, no line between the others.
	for i in 1 2 3; do
		(for i in {1..20}; do "$here" push --thread "$dir" --source here --type t --content "$i" --quiet; done) &
		(for i in {1..20}; do "${there[@]}" push --thread "$dir" --source there --type t --content "$i" --quiet; done) &
	done
	wait
	"$here" peek --thread "$dir" --last-event-id 0 --limit 1000 >"$work/seen-here"
	"${there[@]}" peek --thread "$dir" --last-event-id 0 --limit 1000 >"$work/seen-there"
	[[ $(wc -l <"$work/seen-here") == 121 ]] || echo "$(wc -l <"$work/seen-here") events, want 121"
	cmp "$work/seen-here" "$work/seen-there" || true
	cmp "$work/seen-here" "$dir/events.jsonl" || true
	"$here" check --thread "$dir" 2>&1 >/dev/null || true
	"${there[@]}" check --thread "$dir" 2>&1 >/dev/null || true
}

CGO_ENABLED=0 go build -o "$work/thread" ./cmd/thread
failed=()
for arch in "${arches[@]}"; do
	if [[ $arch == 386 ]] && ! runs386; then
		echo "qemu: 386: this kernel runs no programs of it: NOT RUN" >&2
		continue
	fi
	few=$core
	[[ $arch != s390x ]] || few=yes
	solo=("${alone[@]}") both=("${starting[@]}") tags=()
	if [[ $few ]]; then
		solo=("${core_alone[@]}") both=("${core_starting[@]}") tags=(-tags nooracle)
	fi
	[[ $arch != s390x ]] || both=(lock)
	packages=("${solo[@]}" "${both[@]}")
	prefix=() unsuited=()
	if [[ $arch != 386 ]]; then
		prefix=("$(emulator "$arch")")
		unsuited=(-test.skip "$unsuitable")
		if ! register "$arch" 2>/dev/null; then
			echo "qemu: $arch: the kernel cannot be told about it: ${both[*]} NOT RUN" >&2
			packages=("${solo[@]}")
		fi
	fi
	begin=$SECONDS
	wrong=$(together "$arch" "${prefix[@]}" 2>&1)
	if [[ -z $wrong ]]; then
		printf 'ok    %-8s %-12s %3d s\n' "$arch" "with amd64" $((SECONDS - begin))
	else
		printf 'FAIL  %-8s %-12s %s\n' "$arch" "with amd64" "$wrong"
		failed+=("$arch/with amd64")
	fi
	for pkg in "${packages[@]}"; do
		binary=$work/$arch-${pkg//\//-}.test
		GOARCH=$arch GOARM=6 CGO_ENABLED=0 go test -c "${tags[@]}" -o "$binary" "./$pkg"
		flags=(-test.timeout 10m -test.short "${unsuited[@]}")
		case $few$pkg in
		yesfilter) flags+=(-test.run "$core_filters") ;;
		yescmd/thread) flags+=(-test.run "$core_scripts") ;;
		esac
		[[ $pkg != cmd/thread ]] || flags+=(-test.parallel 2)
		if go list -f '{{join .TestImports " "}} {{join .XTestImports " "}}' "./$pkg" | grep -q pgregory.net/rapid; then
			flags+=(-rapid.checks 10 -rapid.nofailfile)
		fi
		begin=$SECONDS
		if (cd "$pkg" && "${prefix[@]}" "$binary" "${flags[@]}") >"$work/out" 2>&1; then
			printf 'ok    %-8s %-12s %3d s\n' "$arch" "$pkg" $((SECONDS - begin))
		else
			printf 'FAIL  %-8s %-12s %3d s\n' "$arch" "$pkg" $((SECONDS - begin))
			tail -n 60 "$work/out"
			failed+=("$arch/$pkg")
		fi
		rm "$binary"
	done
done
if ((${#failed[@]})); then
	echo "qemu: failed: ${failed[*]}" >&2
	exit 1
fi
