package attempt

import (
	"context"
	"time"
)

// withoutDeadline hides the deadline of a context, which still ends when it
// does. gRPC would send the deadline along, and the member could be the first
// to give up; etcd's client would then repeat the request, a write too.
type withoutDeadline struct{ context.Context }

func (withoutDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }
