//go:build linux

// Sizing measures what a fleet of processes costs etcd and each of them: processes that have a session, hold locks and
// wait for some. docs/operations.md has its figures.
//
//	go run ./tests/measure/sizing -processes 1000
//
// The processes of the fleet are sessions in this process, each with a client and connections of its own. etcd runs as
// a process beside it, with etcd's own ticks and with fsync.
package main
