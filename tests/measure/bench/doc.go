// Command bench compares holdfast with etcd's own concurrency package ("upstream"), and with the bare requests that any
// implementation needs (the "floor"). It runs embedded etcd members that sync to disk as in production.
//
//	go run ./tests/measure/bench                             # everything; updates README.md and figures.svg here
//	go run ./tests/measure/bench -run '^members=1/handover'  # a selection; prints to the terminal only
//	go test -run '^$' -bench . ./tests/measure/bench         # the same subjects as Go benchmarks
//
// Absolute times depend on the machine and its disk. The sides are therefore measured in turns, over several rounds,
// and the ratios between them are the result.
//
// A subject (subject.go) is a row of the table; handover.go, lock.go, election.go, watch.go, floor.go and overhead.go
// define the subjects. measure.go measures them; table.go, chart.go and document.go write the results.
package main
