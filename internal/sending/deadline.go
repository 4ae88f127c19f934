package sending

import (
	"context"
	"time"
)

// withoutDeadline hides the deadline of a context, which still ends at that time. gRPC would send the deadline to the
// member, which could then be the first to give up; etcd's client would repeat the request, a write as well.
type withoutDeadline struct{ context.Context }

func (withoutDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }
