# Everything is built without CGO but the race detector, which needs it.
export CGO_ENABLED = 0

# Functions in lines of 4 bytes: as fast, and less of the program is in memory.
BUILD_FLAGS = -trimpath -ldflags='-s -w -funcalign=4'
# For the smallest hosts, code is inlined only where it is felt, and functions
# follow each other without gaps: 8 % less to store.
MODULE        = $(shell go list -m)
HOT_PACKAGES  = runtime/... unicode/utf8 $(MODULE)/filter $(MODULE)/index $(MODULE)/event
SMALL_FLAGS   = -trimpath -ldflags='-s -w -funcalign=4' -gcflags=all=-l $(HOT_PACKAGES:%=-gcflags=%=)
LITE_TARGETS  = amd64 arm64 arm
LITE_MAX      = 6100000# bytes, for each stripped binary
DIST_TARGETS ?=
REPEAT_TARGETS ?= linux/mipsle
FUZZ_COUNT   ?= 20000
RACE         ?= ./...
CRASH        ?= TestCrash|TestFailure|TestDamage|TestPower
CRASH_POINTS ?= full
POWER_COUNT  ?= 10
KILLS        ?= 200
BENCH        ?= .
BENCH_COUNT  ?= 1
COMPARE_EVENTS ?= 1000000
APIDIFF       = golang.org/x/exp/cmd/apidiff@v0.0.0-20260908205506-85c1c2202aba
GOVULNCHECK   = golang.org/x/vuln/cmd/govulncheck@v1.9.0
# v2 of the module; compiling it takes a minute and a half, once.
GOLANGCI      = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.12.0
STATICCHECK   = honnef.co/go/tools/cmd/staticcheck@v0.7.0

.DEFAULT_GOAL := help
.PHONY: help build bridge test-bridge torture-bridge test-net test bundled race planted crash power fuzz bench compare lint golangci tidy-check dist-lite dist dist-check small-flags api vuln qemu demo renamed

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the programs in bin/, static and stripped
	@mkdir -p bin
	go build $(BUILD_FLAGS) -o bin/ ./cmd/...

test: ## Run all tests (about a minute)
	go test -shuffle on ./...

bundled: ## Run the transcripts on the single file that has every verb
	THREAD_TEST_BUNDLED=1 go test -count 1 -run TestScripts ./cmd/thread

# Without atexit_sleep_ms every process that a test starts sleeps 1 s at its end.
race: ## Run all tests with the race detector (needs a C compiler)
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 go test -race -shuffle on $(RACE)

planted: ## Plant two dozen bugs, one at a time, and see that a test notices each
	THREAD_PLANTED=1 go test -count 1 -timeout 15m -parallel 6 -v -run TestPlanted ./internal/survive

crash: ## Try every place of the crash, failure, damage and power tests, or a sample with CRASH_POINTS=sample
	THREAD_CRASH=$(CRASH_POINTS) go test -count 1 -timeout 90m -v -run '$(CRASH)' ./internal/survive

power: ## Cut the power of a virtual machine POWER_COUNT times on ext4, f2fs and vfat (needs user-mode-linux, e2fsprogs, f2fs-tools, dosfstools)
	THREAD_POWER=$(POWER_COUNT) go test -count 1 -timeout 60m -v -run TestKernel ./internal/survive

fuzz: ## Run every fuzz target FUZZ_COUNT times
	@set -e; for pkg in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZ_COUNT)x $$pkg; \
		done; \
	done

bench: ## Run the benchmarks that match BENCH, BENCH_COUNT times
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(BENCH_COUNT) ./...

# In a module of its own, the one with CGO.
compare: ## Measure beside SQLite, with COMPARE_EVENTS in COMPARE_DIR (needs a C compiler and sqlite3)
	@cd compare && CGO_ENABLED=1 go vet ./... && CGO_ENABLED=1 COMPARE_EVENTS=$(COMPARE_EVENTS) go run .

lint: ## Check format, vet and staticcheck
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt: $$unformatted"; exit 1; fi
	go vet ./...
	GOOS=windows go vet ./...
	GOOS=darwin go vet ./...
	go run $(STATICCHECK) ./...

golangci: ## Check the rules of .golangci.yml
	go run $(GOLANGCI) run ./...

bridge: ## Build thread-bridge in bin/, with all brokers
	@mkdir -p bin
	cd bridge && go build $(BUILD_FLAGS) -o ../bin/ ./cmd/thread-bridge

test-bridge: ## Run the tests of the module bridge; NATS must run on 127.0.0.1:4222
	cd bridge && go vet ./... && go build -tags edge -o /dev/null ./cmd/thread-bridge && go build -tags bare -o /dev/null ./cmd/thread-bridge
	cd bridge && THREAD_BRIDGE_BROKERS=1 THREAD_PLANTED=$(PLANTED) go test -count 1 ./...

torture-bridge: ## Kill thread-bridge KILLS times on each source
	cd bridge && THREAD_BRIDGE_BROKERS=1 THREAD_KILLS=$(KILLS) go test -count 1 -timeout 60m -v -run TestKill ./torture

test-net: ## Run the tests of the module net; PostgreSQL must run on 127.0.0.1:5432, or where THREAD_POSTGRES says
	cd net && go vet ./... && THREAD_POSTGRES="$${THREAD_POSTGRES:-1}" go test -count 1 ./...

tidy-check: ## Check that go.mod and go.sum are what the imports need
	go mod tidy -diff
	cd compare && go mod tidy -diff
	cd bridge && go mod tidy -diff
	cd net && go mod tidy -diff
	go mod verify

dist-lite: ## Build dist/ with thread alone for linux amd64, arm64 and arm/v6 and check the sizes
	@set -e; mkdir -p dist; for arch in $(LITE_TARGETS); do \
		out=dist/thread-linux-$$arch; \
		GOOS=linux GOARCH=$$arch GOARM=6 go build $(SMALL_FLAGS) -o $$out ./cmd/thread; \
		size=$$(wc -c < $$out); echo "$$out: $$size bytes"; \
		if [ $$size -gt $(LITE_MAX) ]; then echo "$$out is larger than $(LITE_MAX) bytes"; exit 1; fi; \
	done

renamed: ## Give the module another path in a copy of the last commit: it builds, and its tables hold
	@work=$$(mktemp -d) && trap 'rm -rf "$$work"' EXIT && git clone -q --no-hardlinks . $$work/copy && cd $$work/copy && \
	tools/module-path.sh example.org/thread && go build ./... && go vet ./... && go test . ./handlers

# For tools/dist.sh.
small-flags:
	@printf '%s\n' "$(SMALL_FLAGS)"

dist: ## Build dist/: archives, packages, checksums and SBOM for all targets, or for DIST_TARGETS
	./tools/dist.sh -o dist $(DIST_TARGETS)

dist-check: ## Build REPEAT_TARGETS twice, from two directories and without a cache, and compare the bytes
	./tools/dist-check.sh $(REPEAT_TARGETS)

api: ## Compare the API of event, filter, engine, handlers and lane with the last tag
	@tag=$$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null) || { echo "api: there is no tag yet: nothing to compare with"; exit 0; }; \
	work=$$(mktemp -d) && trap 'git worktree remove --force $$work/tag; rm -rf $$work' EXIT && git worktree add -q --detach $$work/tag $$tag && \
	for pkg in event filter engine handlers lane; do \
		(cd $$work/tag && go run $(APIDIFF) -w $$work/$$pkg.api $$(go list -m)/$$pkg) && \
		go run $(APIDIFF) -incompatible $$work/$$pkg.api $(MODULE)/$$pkg; \
	done

vuln: ## Look for known vulnerabilities, where their data can be had
	@go run $(GOVULNCHECK) ./... || echo "vuln: NOT CHECKED, or something was found: see above" >&2

qemu: ## Run the tests on other kinds of processors (needs qemu-user-static)
	./tools/qemu.sh

demo: build ## Play the main job with the real program on real input and check the counts
	./demo.sh bin/thread
