#!/usr/bin/env bash
# tools/module-path.sh PATH
#
# Gives the module another path, in this tree: tools/module-path.sh example.org/thread.
# Nothing but imports, go.mod and what a linter is told names it, so that one
# expression is enough.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ $# != 1 || $1 != */* ]]; then
	echo "usage: tools/module-path.sh PATH, as example.org/thread" >&2
	exit 2
fi
old=$(go list -m) new=$1
git ls-files '*.go' '*.patch' | xargs sed -i "s#\"$old/#\"$new/#g"
sed -i -E "s#^(module |replace |\t)$old([/ ]|\$)#\1$new\2#" go.mod compare/go.mod bridge/go.mod net/go.mod
sed -i "s#(\*$old/#(*$new/#" .golangci.yml
gofmt -w $(git diff --name-only -- '*.go')
