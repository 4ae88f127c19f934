// Command bench compares holdfast with etcd's own concurrency package
// ("upstream") and with the least that etcd itself allows (the floor), on
// embedded members that wait for their disk as those in production do.
//
//	go run ./tests/bench                               # all of it, into README.md and figures.svg beside this file
//	go run ./tests/bench -run '^members=1/handover'    # some of it, to the terminal
//	go test -run '^$' -bench . ./tests/bench           # the same subjects as Go benchmarks
//
// Machines are noisy and disks are slow or fast: the sides take turns, several
// times over, and what counts are their ratios.
//
// A subject (subject.go) is a line of the table; handover.go, lock.go,
// election.go, floor.go and overhead.go have them. measure.go lets the sides
// take turns; table.go, chart.go and document.go write down what came out.
package main
