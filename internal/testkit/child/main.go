//go:build unix

package child

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// command is the first argument of a child; the second is its name.
const command = "child"

// named returns the name of this process. It returns false if the process is not a child.
func named() (name string, ok bool) {
	if len(os.Args) != 3 || os.Args[1] != command {
		return "", false
	}
	return os.Args[2], true
}

// Parent is a child's connection to its parent.
type Parent[E any] struct {
	messages chan string
	fail     context.CancelCauseFunc // ends the context of work
}

// Causes of the end of work's context.
var (
	errParentEnded = errors.New("the parent has ended")
	errUnread      = errors.New("the parent has sent more messages than work reads")
)

// maxUnread is the number of messages that may wait for Hear.
const maxUnread = 16

// Main runs work if Start has started this process, with the arguments of Start, and exits when work returns: with code
// 0, or with code 1 after printing the error to stderr. In any other process Main returns at once.
//
// The context of work ends on SIGTERM, and when the parent ends.
func Main[E, J any](work func(ctx context.Context, name string, job J, parent *Parent[E]) error) {
	name, ok := named()
	if !ok {
		return
	}
	var job J
	in := json.NewDecoder(os.Stdin)
	if err := in.Decode(&job); err != nil {
		fmt.Fprintln(os.Stderr, "child: no job on stdin:", err)
		os.Exit(2)
	}
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM) // until the process exits
	ctx, fail := context.WithCancelCause(ctx)
	parent := &Parent[E]{messages: make(chan string, maxUnread), fail: fail}
	go parent.listen(in) // ends with stdin, or with the process
	if err := work(ctx, name, job, parent); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (p *Parent[E]) listen(in *json.Decoder) {
	for {
		var message string
		if in.Decode(&message) != nil {
			p.fail(errParentEnded)
			return
		}
		select {
		case p.messages <- message:
		default: // waiting would hide the end of stdin
			p.fail(errUnread)
		}
	}
}

// Say reports an event to the parent. It is safe for concurrent use. An event that cannot be encoded ends the context
// of work.
func (p *Parent[E]) Say(what string, ev E) {
	line, err := json.Marshal(report[E]{what, ev})
	if err == nil {
		_, err = os.Stdout.Write(append(line, '\n'))
	}
	if err != nil {
		p.fail(err)
	}
}

// Hear waits for the next message of the parent. Its error is the cause of the end of ctx.
func (p *Parent[E]) Hear(ctx context.Context) (message string, err error) {
	select {
	case message = <-p.messages:
		return message, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
