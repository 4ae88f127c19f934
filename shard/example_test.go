package shard_test

import (
	"context"
	"fmt"
	"log"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/shard"
)

// tenants has one function for each tenant. They come and go, and several are in one shard.
type tenants struct {
	shards *shard.Shards
	every  time.Duration                                      // between two calls of list
	list   func(ctx context.Context) ([]string, error)        // all tenants, as from a database
	serve  func(ctx context.Context, tenant string) (_ error) // runs until ctx ends
}

// run is the function of a shard: it runs serve for each tenant that is in it. It returns when all have returned, so
// the next owner of the shard serves none beside it. ctx carries the shard: each serve can make an etcdfence.Writer.
func (t *tenants) run(ctx context.Context, s *shard.Shard) error {
	running := make(map[string]func()) // ends a tenant's function, and waits for it
	ctx, failed := context.WithCancelCause(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer failed(nil)
	for {
		there, err := t.list(ctx)
		if err != nil {
			return err // run is called again after a pause
		}
		for name, end := range running {
			if !slices.Contains(there, name) {
				end()
				delete(running, name)
			}
		}
		for _, name := range there {
			if running[name] != nil || shard.Of(name, t.shards.Count()) != s.Index() {
				continue
			}
			one, cancel := context.WithCancel(ctx)
			done := make(chan struct{})
			running[name] = func() { cancel(); <-done }
			all.Go(func() {
				defer close(done)
				if err := t.serve(one, name); err != nil && one.Err() == nil {
					failed(fmt.Errorf("tenant %s: %w", name, err))
				}
			})
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(t.every):
		}
	}
}

// One function per tenant: 2 shards have 3 tenants, of which one goes and another one comes.
func ExampleShards_Run() {
	srv := etcdfake.New(etcdfake.Options{})
	defer srv.Close()
	sess, err := session.New(context.Background(), srv.Link().Client(), session.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = sess.Close(context.Background()) }()

	database := make(chan []string, 1) // what stands there now
	database <- []string{"acme", "globex", "initech"}
	events := make(chan string)
	t := &tenants{
		// Alone there is no other member to wait for. In production leave Settle at its default.
		shards: shard.New(sess, "tenants", 2).With(shard.Options{Settle: -1}), every: time.Millisecond,
		list: func(context.Context) ([]string, error) {
			now := <-database
			database <- now
			return now, nil
		},
		serve: func(ctx context.Context, tenant string) error {
			_, fenced := fencing.FromContext(ctx)
			events <- fmt.Sprintf("begin %s, fenced: %v", tenant, fenced)
			<-ctx.Done()
			events <- "end " + tenant
			return nil
		},
	}
	ctx, leave := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- t.shards.Run(ctx, t.run) }()

	three := []string{<-events, <-events, <-events}
	slices.Sort(three)
	for _, event := range three {
		fmt.Println(event)
	}
	<-database
	database <- []string{"acme", "initech"} // globex goes
	fmt.Println(<-events)
	<-database
	database <- []string{"acme", "hooli", "initech"} // hooli comes
	fmt.Println(<-events)
	fmt.Println("shards owned:", len(t.shards.Owned()))
	leave()
	last := []string{<-events, <-events, <-events}
	slices.Sort(last)
	fmt.Println(last, <-ended != nil)
	// Output:
	// begin acme, fenced: true
	// begin globex, fenced: true
	// begin initech, fenced: true
	// end globex
	// begin hooli, fenced: true
	// shards owned: 2
	// [end acme end hooli end initech] true
}
