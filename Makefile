# Thin: what a change has to pass is in .ci/run, and each command here is short enough to type.
.DEFAULT_GOAL := help
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
BENCHSTAT := golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
INPUTS ?= 40000
BENCH ?= .
COUNT ?= 6

.PHONY: help
help: ## this list
	@sed -nE 's/^([a-z]+):.*## (.*)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

.PHONY: test
test: ## the root module's tests: seconds, no server
	go test ./...

.PHONY: race
race: ## README's first test command: the root, and what needs one member of etcd
	go test -race -vet=off ./tests/simulation ./tests/etcd/... ./shard ./... ./cmd/holdfast/...

.PHONY: all
all: ## the tests of all modules, under the race detector: minutes
	go test -race ./tests/robustness work

.PHONY: lint
lint: ## gofmt, go vet, golangci-lint
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	go vet work
	go run $(GOLANGCI) run ./... ./cmd/holdfast/... ./contrib/gocronlock/... ./etcdtest/... ./examples/... ./tests/...

.PHONY: fuzz
fuzz: ## each fuzz function with INPUTS=40000
	bash .ci/fuzz $(INPUTS)

.PHONY: bench
bench: ## BENCH=regexp COUNT=6: benchmarks into bench.new, compared with bench.old if there is one
	go test -run '^$$' -bench '$(BENCH)' -count $(COUNT) work | tee bench.new
	go run $(BENCHSTAT) $(wildcard bench.old) bench.new

.PHONY: ci
ci: ## what a change has to pass
	bash .ci/run
