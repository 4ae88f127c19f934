package queue

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/names"
)

// waitedFor returns what to add to the error of a call whose context has ended:
// whom it was queued behind, or that etcd did not answer. What it has to ask for
// is asked beside the removal of e; the result waits for that, giveUpWait at most.
func (q *Queue) waitedFor(ctx context.Context, e *entry) func() string {
	said := func(text string) func() string { return func() string { return text } }
	switch {
	case ctx.Err() == nil:
		return said("")
	case e == nil:
		return said("; the session had no lease")
	case e.stage < placed:
		return said("; etcd has not answered the request to queue")
	case e.ahead == nil && e.delayed() > 0:
		return said("; it was first in the queue, and the lock delay had not passed")
	case e.ahead == nil:
		return said("; it was first in the queue, and the session was not connected")
	}
	ahead := e.ahead
	holder := make(chan string, 1)
	go func() { holder <- q.holderOf(ctx, string(ahead.Key), ahead.CreateRevision) }() // joined by the result
	return func() string {
		return fmt.Sprintf("; queued behind entry %s (%s)", names.Quote(string(ahead.Key)), <-holder)
	}
}

// holderOf reads what the entry says of its holder, for a text.
func (q *Queue) holderOf(ctx context.Context, key string, rev int64) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpWait)
	defer cancel()
	resp, err := q.get(ctx, clientv3.OpGet(key))
	switch {
	case err != nil:
		return "etcd does not answer"
	case !isEntry(first(resp.Kvs), rev):
		return "it has just left"
	}
	if v, ok := DecodeValue(resp.Kvs[0].Value); ok {
		return "owner " + names.Quote(v.holder())
	}
	return "it does not say whose it is"
}
