# Everything is built without CGO but the race detector, which needs it.
export CGO_ENABLED = 0

# Functions in lines of 4 bytes: as fast, and less of the program is in memory.
BUILD_FLAGS = -trimpath -ldflags='-s -w -funcalign=4'
# For the smallest hosts, code is inlined only where it is felt, and functions
# follow each other without gaps: 6 to 9 % less to store.
MODULE        = $(shell go list -m)
HOT_PACKAGES  = runtime/... unicode/utf8 $(MODULE)/filter $(MODULE)/filter/internal/like $(MODULE)/filter/internal/sqltext $(MODULE)/index $(MODULE)/event
SMALL_FLAGS   = -trimpath -ldflags='-s -w -funcalign=4' -gcflags=all=-l $(HOT_PACKAGES:%=-gcflags=%=)
# The program of thread-lite decides events by walking the tree of a filter, without expr.
LITE_FLAGS    = $(SMALL_FLAGS) -tags lite
LITE_TARGETS  = amd64 arm64 arm
LITE_MAX      = 6832000# bytes, for each stripped binary
DIST_TARGETS ?=
REPEAT_TARGETS ?= linux/mipsle
# make test leaves these to make test-all, which CI runs after it: they start processes by
# the hundred, build programs, or try a fault at every place.
SLOW_CRASHES  = LargePush|CrashOf.*|CrashIn.*|CrashSteps|PowerLoss.*|(Crash|Failure)(Backup|History)|LyingCard|KillAtEveryPlace
SLOW_SOAKS    = RewriteBesideWriters|Soak|SoakKeys|MirrorSoak|Rate|CopyWhilePushing|DamagedLines|FewDescriptors|FixLogBesidePushes|PushBesideEachCall|Floods
SLOW_FAULTS   = Steps(BehindABatch|Of.*)|MuchIsPushedMeanwhile|OutcomeAfterTheWait|CalledOff|DamagedBehindABatch|DamagedPages|LineFaults|FailuresOf.*|FailingBytes
SLOW_PROGRAMS = Shop|LibraryPage|Pages|SpecCommands
SLOW_SCRIPTS  = advice|batch_large|concurrent|dispatch|help|history|jobs|linesoff|outbox|recorded|runs|steps|waits
SLOW = ^Test($(SLOW_CRASHES)|$(SLOW_SOAKS)|$(SLOW_FAULTS)|$(SLOW_PROGRAMS))$$|^Test(Crash|Failure)Matrix$$/^([^p]|p[^u]|push_)|^TestGoals$$/Go|^TestScripts$$/^($(SLOW_SCRIPTS))$$
FUZZ_COUNT   ?= 20000
RACE         ?= ./...
CRASH        ?= TestCrash|TestFailure|TestDamage|TestPower
CRASH_POINTS ?= full
POWER_COUNT  ?= 10
POWER_PUSHES ?= 500# acknowledged before each cut
KILLS        ?= 200
FLEET_KILLS  ?= 400
FLEET_FAILOVERS ?= 50
FLEET_CUTS   ?= 5000# while reading, and as many while pushing
# Of make mutants: where, how many, which (0: random), how many may survive (-1: 5 %),
# and how many at once.
PKG          ?= all
COUNT        ?= 20
SEED         ?= 0
MOST         ?= -1
JOBS         ?= 1
# Of make simulate.
MINUTES      ?= 1
SIMULATE     ?=
BENCH        ?= .
BENCH_COUNT  ?= 1
COMPARE_EVENTS ?= 1000000
GOVULNCHECK   = golang.org/x/vuln/cmd/govulncheck@v1.9.0
# v2 of the module; compiling it takes a minute and a half, once.
GOLANGCI      = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.12.0
VALE          = github.com/vale-cli/vale/v3/cmd/vale@v3.21.0
STATICCHECK   = honnef.co/go/tools/cmd/staticcheck@v0.7.0

# A run ends before there is garbage to collect, and the collector of Go 1.25 and
# before touches fewer pages at the start: 7 % of a push. While the toolchain has it.
build bridge net compare dist dist-check dist-lite release: export GOEXPERIMENT = $(if $(shell GOEXPERIMENT=nogreenteagc go version 2>/dev/null),nogreenteagc)

.DEFAULT_GOAL := help
# Those of the pages that the documents show.
PICTURES = home-1440-light consumers-1440-light dead-1440-dark home-390-light

.PHONY: help build bridge net test-bridge torture-bridge test-net torture-fleet test test-all bundled race planted crash power fuzz bench compare lint prose golangci tidy-check dist-lite dist dist-check small-flags api vuln mutants mutants-all simulate branches qemu docs site demo renamed release test-ui pictures compare-net

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the programs in bin/, static and stripped
	@mkdir -p bin
	go build $(BUILD_FLAGS) -o bin/ ./cmd/...

# The longest package first: nothing would run beside it at the end. More at once than
# there are processors, as those of dispatch and serve mostly wait.
GO_TEST = go test -timeout 30m -p $$((2 * $$(getconf _NPROCESSORS_ONLN))) -shuffle on -vet=off

test: ## Run the tests, the quick ones (up to three minutes)
	$(GO_TEST) -short -skip '$(SLOW)' ./internal/survive ./...

test-all: ## Run all tests, which CI does after the quick ones (four minutes)
	$(GO_TEST) ./internal/survive ./...

bundled: ## Run the transcripts on the single file that has every verb, and with kong reading every command line
	THREAD_TEST_BUNDLED=1 THREAD_QUICK_PARSER=off go test -count 1 -run TestScripts ./cmd/thread

# Without atexit_sleep_ms every process that a test starts sleeps 1 s at its end.
race: ## Run all tests with the race detector (needs a C compiler)
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 go test -race -shuffle on $(RACE)

planted: ## Plant three dozen bugs, one at a time, and see that a test notices each
	THREAD_PLANTED=1 go test -count 1 -timeout 45m -parallel 6 -v -run TestPlanted ./internal/survive

simulate: ## Run several programs in orders that a seed chooses, for MINUTES; SIMULATE='-scenario NAME -seed N -trace' repeats one, '-bug PATCH' plants a bug (Linux)
	@go build -o bin/simulate ./tools/simulate
	@bin/simulate -minutes $(MINUTES) $(SIMULATE)

mutants: ## Change COUNT places of PKG (./lock, a file, or all), one at a time, and print those that no test notices; SEED repeats a run
	@go build -o bin/mutants ./tools/mutants
	@bin/mutants -count $(COUNT) -seed $(SEED) -most $(MOST) -jobs $(JOBS) $(PKG)

mutants-all: ## Try every mutant of every room of tools/mutants/rooms.txt, for a night
	@$(MAKE) --no-print-directory mutants PKG=all COUNT=0 JOBS=4

branches: ## Run the tests with coverage, also of the programs they start, and print blocks of the rooms that nothing reaches; BRANCHES='-update -all' rewrites the list
	@go build -o bin/branches ./tools/branches
	@bin/branches $(BRANCHES)

crash: ## Try every place of the crash, failure, damage and power tests, or a sample with CRASH_POINTS=sample
	THREAD_CRASH=$(CRASH_POINTS) go test -count 1 -timeout 90m -v -run '$(CRASH)' ./internal/survive

power: ## Cut the power of a virtual machine POWER_COUNT times on ext4, f2fs and vfat, after POWER_PUSHES pushes (needs user-mode-linux, e2fsprogs, f2fs-tools, dosfstools)
	THREAD_POWER=$(POWER_COUNT) THREAD_POWER_PUSHES=$(POWER_PUSHES) go test -count 1 -timeout 10h -v -run TestKernel ./internal/survive

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
	@cd compare && CGO_ENABLED=1 go vet ./... && CGO_ENABLED=1 COMPARE_EVENTS=$(COMPARE_EVENTS) go test -count 1 -timeout 0
	@cd compare && CGO_ENABLED=1 go test -count 1 -timeout 0 ./bridge -args -n 60000

lint: prose ## Check format, vet, staticcheck and prose
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt: $$unformatted"; exit 1; fi
	go vet ./...
	GOOS=darwin go vet ./...
	cd bridge && GOOS=darwin go vet ./...
	go run $(STATICCHECK) ./...

prose: ## Check the words of documents and comments with vale, by .vale.ini (needs a C compiler)
	@CGO_ENABLED=1 go run $(VALE) --output line --glob='!bin/*' .

# With a cache of this clone: a shared one has results of other work trees, with their paths.
golangci: export GOLANGCI_LINT_CACHE = $(CURDIR)/bin/.golangci
golangci: ## Check the rules of .golangci.yml
	go run $(GOLANGCI) run ./...
	cd bridge && go run $(GOLANGCI) run ./...
	cd net && go run $(GOLANGCI) run ./...

bridge: ## Build thread-bridge in bin/, with all brokers
	@mkdir -p bin
	cd bridge && go build $(BUILD_FLAGS) -o ../bin/ ./cmd/thread-bridge

test-bridge: ## Run the tests of the module bridge; NATS, RabbitMQ, Redis and Mosquitto must run on their ports of 127.0.0.1
	cd bridge && go vet ./... && go build -tags edge,lite -o /dev/null ./cmd/thread-bridge && go build -tags bare -o /dev/null ./cmd/thread-bridge
	cd bridge && THREAD_BRIDGE_BROKERS=1 THREAD_PLANTED=$(PLANTED) go test -count 1 ./...

torture-bridge: ## Kill thread-bridge KILLS times on each source, a quarter of that on each sink and at every system call; restart brokers
	cd bridge && THREAD_BRIDGE_BROKERS=1 THREAD_KILLS=$(KILLS) go test -count 1 -timeout 60m -v -run 'TestKill|TestPoison|TestSystemCalls|TestJoinAndLeave|TestBrokerRestarts' ./torture ./kafka ./jetstream ./redis
	cd bridge && THREAD_BUDGETS=1 go test -count 1 -v -run TestBudgets ./cmd/thread-bridge

net: ## Build thread-net in bin/, for threads in PostgreSQL
	@mkdir -p bin
	cd net && go build $(BUILD_FLAGS) -o ../bin/ ./cmd/thread-net

test-net: ## Run the tests of the module net; PostgreSQL must run on 127.0.0.1:5432, or where THREAD_POSTGRES says
	cd net && go vet ./... && THREAD_POSTGRES="$${THREAD_POSTGRES:-1}" go test -count 1 ./...

torture-fleet: ## Kill a primary FLEET_FAILOVERS times, its standby takes over, and a server as often that starts again; kill, stop and cut off hosts of a thread in PostgreSQL FLEET_KILLS times, and connections 2 * FLEET_CUTS times; plant its bugs, and check the model of its turns
	cd net && THREAD_FAILOVERS=$(FLEET_FAILOVERS) go test -count 1 -timeout 60m -v -run 'TestFailover|TestRestart' ./cmd/thread-net
	cd net && THREAD_POSTGRES="$${THREAD_POSTGRES:-1}" THREAD_KILLS=$(FLEET_KILLS) go test -count 1 -timeout 60m -v -run 'TestKills|TestStopped|TestNamespaces|TestLease|TestTwoAtOnce' ./cmd/thread-net
	cd net && THREAD_POSTGRES="$${THREAD_POSTGRES:-1}" THREAD_CUTS=$(FLEET_CUTS) THREAD_PLANTED=1 THREAD_MODEL=1 go test -count 1 -timeout 60m -v -run 'TestPlanted|TestTurnModel|TestCut|TestCrowd' ./pgstore

compare-net: ## Measure a thread in PostgreSQL beside a table of jobs in plain SQL, on the server on 127.0.0.1:5432
	@cd net && go test -count 1 -timeout 0 -v ./internal/compare -args -n 1000
	@cd compare && go test -count 1 -timeout 0 -v ./river -args -n 50

test-ui: ## Run the tests of the module uitest: the pages of thread serve in Chromium; npm fetches axe-core once
	cd uitest && go vet ./... && go test -count 1 ./...

pictures: ## Make docs/pictures again: four looks of the pages in Chromium, of which the documents show some
	@set -e; all=$$(mktemp -d); (cd uitest && THREAD_SCREENSHOTS=$$all go test -count 1 -run TestPictures .); \
	for name in $(PICTURES); do cp $$all/$$name.png docs/pictures/; done; echo "all of them are in $$all"

tidy-check: ## Check that go.mod and go.sum are what the imports need
	go mod tidy -diff
	cd compare && go mod tidy -diff
	cd bridge && go mod tidy -diff
	cd net && go mod tidy -diff
	cd uitest && go mod tidy -diff
	cd tools/site && go mod tidy -diff
	go mod verify

dist-lite: ## Build dist/ with thread alone for linux amd64, arm64 and arm/v6 and check the sizes
	@set -e; mkdir -p dist; for arch in $(LITE_TARGETS); do \
		out=dist/thread-linux-$$arch; \
		GOOS=linux GOARCH=$$arch GOARM=6 go build $(LITE_FLAGS) -o $$out ./cmd/thread; \
		size=$$(wc -c < $$out); echo "$$out: $$size bytes"; \
		if [ $$size -gt $(LITE_MAX) ]; then echo "$$out is larger than $(LITE_MAX) bytes"; exit 1; fi; \
	done

renamed: ## Give the module another path in a copy of the last commit: it builds, and its tables hold
	@work=$$(mktemp -d) && trap 'rm -rf "$$work"' EXIT && git clone -q --no-hardlinks . $$work/copy && cd $$work/copy && \
	tools/module-path.sh example.org/thread && go build ./... && go vet ./... && go test . ./handlers

# For tools/dist.sh.
small-flags:
	@printf '%s\n' "$(SMALL_FLAGS)"

.PHONY: lite-flags
lite-flags:
	@printf '%s\n' "$(LITE_FLAGS)"

dist: ## Build dist/: archives, packages, checksums and SBOM for all targets, or for DIST_TARGETS
	./tools/dist.sh -o dist $(DIST_TARGETS)

dist-check: ## Build REPEAT_TARGETS twice, from two directories and without a cache, and compare the bytes
	./tools/dist-check.sh $(REPEAT_TARGETS)

release: ## Build release/, what is published for the tag of the last commit; fails on a dirty tree
	./tools/release.sh release

api: ## Compare the packages that are promised with the last version's tag; fails when users of them would break
	./tools/api.sh

vuln: ## Look for known vulnerabilities, where their data can be had
	@go run $(GOVULNCHECK) ./... || echo "vuln: NOT CHECKED, or something was found: see above" >&2

qemu: ## Run the tests on other kinds of processors (needs qemu-user-static)
	./tools/qemu.sh

docs: ## Write docs/reference from the programs; a test compares it
	go test -count 1 -run TestReference ./cmd/thread -update

site: ## Build site/, the documents as pages with search, for a browser without a server
	cd tools/site && go run . ../.. ../../site

demo: build ## Play the main job with the real program on real input and check the counts
	./demo.sh bin/thread
