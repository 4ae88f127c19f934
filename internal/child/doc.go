// Package child runs this program once more, as a process of its own that can be stopped, continued and killed, and has
// the two talk. It is for the examples and for tests, where a pause or a crash must be a real one.
//
//	func main() {
//		child.Main(work) // does not return in a process that was started as a child
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
// In a test binary it is TestMain that calls Main first.
//
// The job and what the child is told go to its stdin, its events come from its stdout, each a line of JSON. So a child
// prints nothing else to stdout; what it writes to stderr is kept, and shown when something has failed.
//
// # No child survives its parent
//
// A parent that ends in order calls Kill or KillAll, which return when the child is reaped, stopped or not.
//
// One that does not, because it was killed itself, takes its end of the pipes with it. Then the context of the child's
// work ends, as stdin does; and a child that reports an event is ended by SIGPIPE. A child that is stopped at that moment
// hears of it too: each is in a process group of its own, which nobody is left to continue, and such groups are sent
// SIGHUP and SIGCONT by the kernel. The group also keeps a Ctrl-C from the children: it is for the parent.
//
// What is not guaranteed: that work ends which ignores its context and says nothing; and that the kernel wakes a child up
// when the process that inherits it is of the same session, as a container's first process may be.
//
// All of it is for Unix: elsewhere the package is empty.
package child
