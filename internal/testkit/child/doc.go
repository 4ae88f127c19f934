// Package child starts another process of the running program, which can be stopped, continued and killed, and connects
// the two by messages. It is for examples and tests in which a pause or a crash must be a real one.
//
//	func main() {
//		child.Main(work) // in a child, runs work and exits
//		…
//		a, err := child.Start[event]("A", job{…})
//		ev, err := a.Await(ctx, "acquired")
//	}
//
//	func work(ctx context.Context, name string, j job, parent *child.Parent[event]) error {
//		…
//		parent.Say("acquired", event{…})
//	}
//
// In a test binary, TestMain calls Main first.
//
// The child gets its job and messages on stdin, and prints its events to stdout, each as a line of JSON. So it must
// print nothing else to stdout. What it prints to stderr is kept, and shown in errors.
//
// # No child survives its parent
//
// A parent that ends in order calls Kill or KillAll, which return when the child is gone, even if it was stopped.
//
// When a parent is killed, its ends of the pipes close. Then the context of work ends, as stdin ends, and a child that
// reports an event gets SIGPIPE. This reaches a stopped child, too: each child has a process group of its own, and the
// kernel sends SIGHUP and SIGCONT to a stopped group whose parent has gone. The group also keeps a Ctrl-C of the
// terminal from the children; only the parent gets it.
//
// Two things are not guaranteed: that work ends if it ignores its context and reports nothing; and that the kernel
// continues a stopped child if the process that inherits it is in the same session, as the first process of a container
// may be.
//
// Except on Unix, the package is empty.
package child
