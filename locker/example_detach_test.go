package locker_test

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/locker"
)

// One process begins an order, and another finishes it. No other process has the order in between.
func ExampleAttach() {
	_, mine, theirs, end := example()
	defer end()
	ctx := context.Background()

	// The first process. Its work has ended when it detaches, for the ticket keeps the token.
	var text []byte
	var token int64
	err := locker.NewMutex(mine, "orders/7").Do(ctx, func(ctx context.Context, lk *locker.Lock) error {
		token = int64(lk.Token())
		ticket, err := lk.Detach(ctx, time.Hour) // ctx has ended now
		if err != nil {
			return err // Do unlocks
		}
		text, err = ticket.MarshalText() // to be sent, or kept where only the second process reads it
		return err
	})
	fmt.Println("detached:", err == nil)

	// The second one.
	var ticket locker.Ticket
	if err := ticket.UnmarshalText(text); err != nil {
		fmt.Println(err)
		return
	}
	lk, err := locker.Attach(ctx, theirs, ticket, locker.Options{})
	if err != nil {
		fmt.Println(err) // a *holdfast.TicketError: it was used, has expired, or was kicked
		return
	}
	defer func() { _ = lk.Unlock(ctx) }()
	fmt.Println("attached:", lk.Check() == nil, int64(lk.Token()) == token)
	// Output:
	// detached: true
	// attached: true true
}
