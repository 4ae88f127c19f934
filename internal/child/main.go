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

// command makes a process of this program a child: PROGRAM command NAME.
const command = "child"

// named returns the name of this process, if it is a child.
func named() (name string, ok bool) {
	if len(os.Args) != 3 || os.Args[1] != command {
		return "", false
	}
	return os.Args[2], true
}

// Parent is whom a child reports to.
type Parent[E any] struct {
	told chan string
	fail context.CancelCauseFunc
}

// Why the context of work ends.
var (
	errParentEnded = errors.New("the parent has ended")
	errUnheard     = errors.New("more was told than is heard")
)

// Main returns at once, unless Start has started this process. Then it runs work with the name and the job that Start
// was given, and ends the process when work returns: with an error that is written to stderr, or with exit code 0.
//
// The context ends on SIGTERM, and with the parent.
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
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM) // stays for as long as the process
	ctx, fail := context.WithCancelCause(ctx)
	parent := &Parent[E]{told: make(chan string, 16), fail: fail}
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
		case p.told <- message:
		default: // to wait would be not to see the end of stdin
			p.fail(errUnheard)
		}
	}
}

// Say reports an event. Several goroutines may call it.
func (p *Parent[E]) Say(what string, ev E) {
	line, err := json.Marshal(said[E]{what, ev})
	if err == nil {
		_, err = os.Stdout.Write(append(line, '\n'))
	}
	if err != nil {
		p.fail(err)
	}
}

// Hear waits for what Child.Tell sends. Its error is the cause for which the context has ended.
func (p *Parent[E]) Hear(ctx context.Context) (message string, err error) {
	select {
	case message = <-p.told:
		return message, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
