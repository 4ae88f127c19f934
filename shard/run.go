package shard

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/callback"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/internal/telemetry"
	"github.com/holdfast-go/holdfast/member"
)

const (
	// announceWithin bounds how long Run tells the others that it retires before the contexts of functions end.
	announceWithin = time.Second

	// maxAge is three times the pause between two reads of the members: a watch may be silent on a living connection.
	maxAge = 15 * time.Minute
)

// Run joins the members, and calls fn for each shard that is assigned to this one, each on its own goroutine, until ctx
// ends. fn gets a shard once this member holds its lock. fn's context carries the shard for package fencing. It ends
// when the shard is lost, when it is assigned to another member (with cause ErrMoved), and after ctx has ended. When fn
// has returned, the shard is released, and its next owner, which already waits, holds it.
//
//   - fn returned while the shard is still assigned to this member: OnError gets its error, or ErrReturned if it
//     returned nil. After a pause the member queues for the shard again: after an error as Options.Retry says; after
//     nil up to a minute later, if fn returns nil at once each time. A function without work waits for ctx.Done().
//   - A suspension has ended its context, under Options.CancelOnSuspended: the shard is released once etcd answers, and
//     this member queues for it again.
//   - fn did not return within Options.DrainTimeout: the shard is lost, and the next owner may hold it. This member
//     queues for it again once fn has returned.
//   - fn panicked, or called runtime.Goexit: Run ends as if ctx had ended, and continues it on its own goroutine.
//
// When ctx ends, Run says in etcd that this member retires, and others queue for its shards; that may take 1 s. With
// Options.Rejoin it does not: the shards are for the next process of this name. Then Run ends the functions' contexts.
// It returns when all functions have returned and their shards are released, with ctx's error; joined with
// ErrNotDrained, if a function is still running DrainTimeout after that.
//
// Other errors, after which the functions were joined in the same way: a *holdfast.ArgumentError or *holdfast.NameError
// before anything is sent; a *CountError; holdfast.ErrClosed, holdfast.ErrClientClosed; under session.Options.StayLost
// the *holdfast.LostError; an error of etcd where a retry cannot help, such as a role without the permission to read
// the members.
func (s *Shards) Run(ctx context.Context, fn func(context.Context, *Shard) error) error {
	if err := s.validate(ctx, fn); err != nil {
		return s.failed(err)
	}
	if err := s.ensureCount(ctx); err != nil {
		return s.failed(err)
	}
	members := member.NewReader(s.host.Client, s.Group()).With(member.ReaderOptions{
		Namespace: s.host.Namespace, MaxAge: maxAge, Retry: s.host.Retry, Clock: s.host.Clock,
	})
	open, cancel := lease.WithSession(ctx, s.host.Env)
	before, err := members.Members(open)
	cancel()
	if err != nil {
		return s.failed(err)
	}
	settling := newSettling(s.opts.settle(), before)
	m, err := member.Join(ctx, s.sess, s.Group(), member.Options{
		Name: s.opts.Member, Value: s.opts.Value, Rejoin: s.opts.Rejoin, Capacity: s.opts.Capacity,
		Settle: settling.waits(cmp.Or(s.opts.Member, s.host.Identity.Owner)),
	})
	if err != nil {
		return s.failed(err)
	}
	r := &run{
		shards: s, member: m, fn: fn, telemetry: s.host.Telemetry.Shards(s.name),
		followed: followed{settling: settling, slots: make(map[int]slot)},
	}
	following, end := context.WithCancelCause(ctx)
	r.end = end
	defer s.here.members.add(m)()
	defer r.telemetry.Begin(s.n)()
	defer end(nil)
	r.functions, r.stopAll = context.WithCancelCause(context.WithoutCancel(ctx))
	r.workers.Go(func() { // joined by leave
		select {
		case <-s.sess.Done(): // nothing else tells a member without a shard
			end(s.host.Check())
		case <-r.functions.Done():
		}
	})
	r.follow(following, members)
	why := context.Cause(following)
	r.leave(ctx, why)
	r.rethrow()
	return r.result(ctx, why)
}

// run is one call of Run.
type run struct {
	shards *Shards
	member *member.Member
	fn     func(context.Context, *Shard) error

	telemetry *telemetry.Shards

	end       context.CancelCauseFunc // ends Run
	functions context.Context         // ends when all functions are to return
	stopAll   context.CancelCauseFunc // ends it

	followed // follow's goroutine uses it
	workers  sync.WaitGroup
	told     callback.Calls

	mu sync.Mutex // protects what follows
	failures
}

// followed is what a member has made of its group so far.
type followed struct {
	settling *settling
	slots    map[int]slot     // by shard, once it was wanted
	drained  clientv3.LeaseID // of this member's latest drain: a goroutine renews it
	compared int64            // the create revision of the latest key for which the number was compared
}

// failures are what Run ends with.
type failures struct {
	notDrained error    // of a function that still runs
	exit       *outcome // of the first function that panicked
}

// slot has the worker of one shard.
type slot struct {
	stop context.CancelCauseFunc // nil: the shard is not wanted
	done chan struct{}           // closed when the latest worker has ended
}

// follow wants and gives up shards as the members come, settle and go, until ctx ends. It ends Run if they cannot be
// read any more.
func (r *run) follow(ctx context.Context, members *member.Reader) {
	groups := make(chan member.Group)
	go func() { // joined below
		defer close(groups)
		for group, err := range members.Watch(ctx) {
			if err != nil {
				r.end(err) // unless it has ended, and this is the consequence
				return
			}
			groups <- group
		}
	}()
	var latest member.Group
	for {
		select {
		case group, open := <-groups:
			if !open {
				return
			}
			latest = group
		case <-r.settling.due:
		}
		r.assign(latest)
	}
}

// assign wants the shards of this member, and gives up the others.
func (r *run) assign(group member.Group) {
	own, lease := r.member.Name(), r.shards.host.Lease().ID()
	why, state := ErrMoved, r.member.Check()
	isOwn := func(m member.Info) bool { return m.Name == own && m.Lease == lease }
	switch at := slices.IndexFunc(group.Members, isOwn); {
	case at >= 0: // perhaps before the reply to its put
		r.compareCount(group.Members[at].Created)
	case errors.Is(state, holdfast.ErrLost):
		why = state // its shards are lost with its lease
	default: // also if a twin of its name is there: that may leave
		// Someone deleted the key by hand. That is no reason to give up all shards: the member counts itself, and puts the
		// key again.
		self := member.Info{Name: own, Capacity: r.member.Capacity()}
		group.Members = append(slices.Clone(group.Members), self)
		_ = r.member.Update(ended(context.Background()), r.shards.opts.Value) // goes on without its context
	}
	r.keepDrained(group.Drained)
	settled := r.settling.settled(group)
	assigned := Assigned(settled, r.shards.n)
	r.telemetry.Reserved(reserved(group.Absent, assigned))
	if len(settled.Members) == len(group.Members) { // else there may be room as soon as the others have settled
		r.telemetry.LeftOver(leftOver(assigned))
	}
	for index, owner := range assigned {
		if owner == own { // also while an absent member of its name is expected back
			r.want(index)
		} else {
			r.giveUp(index, why)
		}
	}
}

// compareCount compares the number of shards once for each key of the member, when the key stands: from then on a
// resize is refused. A member without a shard compares it, too, for nothing else would tell it.
//
//	rev 10: the lease ends, and the key goes · rev 11: a resize, from 1 to 64 · rev 12: the key stands again
//	→ the member compares, finds 64, and ends, although the one shard it knows of is another member's
func (r *run) compareCount(created int64) {
	if created <= r.compared {
		return
	}
	r.compared = created
	r.workers.Go(r.ensureCount) // joined by leave
}

// ensureCount ends Run if the number of shards in etcd is another one, or if etcd does not say it.
func (r *run) ensureCount() {
	if err := r.shards.ensureCount(r.functions); err != nil {
		r.end(err)
	}
}

// reserved returns how many shards are assigned to absent members.
func reserved(group []member.Info, assigned []string) (count int) {
	absent := make(map[string]bool)
	for _, m := range group {
		absent[m.Name] = true
	}
	for _, owner := range assigned {
		if absent[owner] {
			count++
		}
	}
	return count
}

// want has a worker hold the shard. The worker begins when the one before it has ended: two functions of a shard never
// overlap.
func (r *run) want(index int) {
	s := r.slots[index]
	if s.stop != nil {
		return
	}
	before := s.done
	var ctx context.Context
	ctx, s.stop = context.WithCancelCause(r.functions)
	s.done = make(chan struct{})
	r.slots[index] = s
	r.workers.Go(func() { // joined by leave
		defer close(s.done)
		r.telemetry.State("", waiting)
		defer r.telemetry.State(waiting, "")
		if before != nil {
			<-before
		}
		newWorker(r, index).run(ctx)
	})
}

func (r *run) giveUp(index int, why error) {
	s := r.slots[index]
	if s.stop == nil {
		return
	}
	s.stop(why)
	s.stop = nil
	r.slots[index] = s
}

// leave hands all shards over, and returns when all functions have returned, or DrainTimeout has passed.
func (r *run) leave(ctx context.Context, why error) {
	if r.shards.opts.Rejoin == 0 {
		announce, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceWithin)
		_ = r.member.Retire(announce) // goes on without its context
		cancel()
	}
	r.stopAll(why)
	r.workers.Wait()
	// ctx may live, as after a panic: then, too, Run is to return while etcd is away.
	detached, cancel := r.shards.host.Detached(ended(ctx))
	defer cancel()
	_ = r.member.Leave(detached) // the session goes on with it
	select {
	case <-r.told.Idle():
	case <-time.After(r.shards.opts.drainTimeout()):
		r.shards.log().Warn("holdfast: Run returns while OnError is still running")
	}
}

// ended returns ctx, ended. A session gives a call with such a context CloseTimeout for what it still sends.
func ended(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

func (r *run) result(ctx context.Context, why error) error {
	r.mu.Lock()
	notDrained := r.notDrained
	r.mu.Unlock()
	err := r.shards.failed(why)
	if ctx.Err() != nil {
		err = retry.ContextErr(ctx)
	}
	return errors.Join(err, notDrained)
}

// tell tells OnError of an error, after which Run goes on.
func (r *run) tell(index int, err error) {
	onError := r.shards.opts.OnError
	if onError == nil {
		r.shards.log().Warn("holdfast: a shard has failed; queueing for it again while it is assigned to this member",
			"shard", index, "error", err)
		return
	}
	r.told.Add(callback.Call{Callback: "OnError", Log: r.shards.log(), Run: func() { onError(index, err) }})
}

// exited ends Run because a function has panicked or called runtime.Goexit.
func (r *run) exited(o outcome) {
	r.mu.Lock()
	if r.exit == nil {
		r.exit = &o
	}
	r.mu.Unlock()
	r.end(errors.New("a function has panicked"))
}

// rethrow continues the panic or Goexit of a function. The panic keeps its value; invoke has logged its stack.
func (r *run) rethrow() {
	r.mu.Lock()
	exit := r.exit
	r.mu.Unlock()
	switch {
	case exit == nil:
	case exit.panicked == nil:
		runtime.Goexit()
	default:
		panic(exit.panicked)
	}
}
