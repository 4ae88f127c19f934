// Package guides tests that the Go in all documents compiles, and that the commands in them can be run.
package guides
