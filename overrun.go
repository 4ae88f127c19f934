package holdfast

import "time"

// OverrunFunc is told of a function that has not returned in time after its lock, term or shard was lost: the function
// does not heed its context, and will soon work beside the next holder's. lost says what is lost and why; since says
// when. Write the stacks, and end the process:
//
//	OnOverrun: func(lost *holdfast.LostError, since time.Time) {
//		log.Printf("still running, %v after: %v", time.Since(since), lost)
//		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
//		os.Exit(1)
//	},
//
// In time is half of session.Options.LockDelay or of the drift margin, whichever is shorter: by default 0.75 s. The
// call is made at once after a pause of the process that was longer than that. It is made at once when a lease has
// expired under CancelOnSuspended, too: the suspension has told the function long before. A kick asks, and its name
// stays taken: the function has 30 s more, unless an administrator removes the lock meanwhile. When DrainTimeout is
// over, the call is made before the term or shard is given up, and its return is waited for.
//
// So after an expired lease, a kick, a removal and, as a rule, a revocation, the process ends before the next holder
// holds. After MaxHold the name is free at once, and a paused process ends nothing: fence what the
// function writes.
//
// It is called at most once for each call of the function, on a goroutine of its own or, after DrainTimeout, on that of
// Run or of the shard, and for several shards at once. It is not called after Unlock, Resign or Session.Close, even if
// these follow the loss: the function may go on with something else. No Do waits for it. A panic in it ends the process
// or Run. nil costs nothing.
type OverrunFunc func(lost *LostError, since time.Time)
