package requests

// The bounds of batches, which tests of other packages' kits need.
const (
	MaxWait     = maxWait
	MaxInFlight = maxInFlight
)

// FlushOverdue is what the timer of a batch calls.
func (c *Committer) FlushOverdue() { c.flushOverdue() }

// InFlight is how many batches no reply has ended.
func (c *Committer) InFlight() int { return c.inFlight }
