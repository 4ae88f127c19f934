//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/tests/internal/register"
	"github.com/holdfast-go/holdfast/tests/oracle"
)

// A registerOp is what a holder did with a register: the data that the holders in a queue write by an etcdfence.Writer,
// or the mark that they raise in etcdfence.Marks.
type registerOp struct {
	register.Op
	Key     string // of the register
	Unknown bool   // whether it had an effect
}

const (
	// marks are the keys of etcdfence.Marks.
	marks = oracle.Keys + "mark/"
	// decidedWithin is how long porcupine may search for an order of the operations on one register.
	decidedWithin = time.Minute
)

// A fenced holder is one that writes.
type fencedHolder struct {
	worker *worker
	owner  fencing.Hold
	part   oracle.Part
	who    string
}

// markLate raises the mark once more some time after the hold.
func (h fencedHolder) markLate(holding context.Context) {
	<-holding.Done()
	ctx, cancel := context.WithTimeout(h.worker.stop, 20*time.Second)
	defer cancel()
	pauseFor(ctx, time.Second)
	h.mark(ctx)
}

// token returns that of the holder; 0 if others hold beside it.
func (h fencedHolder) token() holdfast.Token {
	if s, ok := h.owner.(fencing.Source); ok && !h.part.Shared {
		return s.Token()
	}
	return 0
}

// did reports an operation, which has just returned err.
func (h fencedHolder) did(op registerOp, err error) {
	op.Return = sinceBoot()
	switch {
	case errors.Is(err, fencing.ErrStale):
		op.Refused = true
	case err != nil && (op.Read || !op.Mark && errors.Is(err, fencing.ErrNotDone)):
		return // it had no effect
	default:
		op.Unknown = err != nil
	}
	h.worker.say(event{What: used, Who: h.who, Used: op})
}

// put writes for the nth time, and then reads.
func (h fencedHolder) put(ctx context.Context, n int) error {
	op := registerOp{Key: oracle.DataKey(h.part.Prefix)}
	op.Token, op.Value, op.Call = h.token(), oracle.ValueOf(h.who, n), sinceBoot()
	_, put := etcdfence.NewWriter(h.owner).Put(ctx, op.Key, op.Value)
	h.did(op, put)
	op = registerOp{Op: register.Op{Read: true, Call: sinceBoot()}, Key: op.Key}
	resp, err := h.owner.Client().Get(ctx, op.Key)
	if err == nil && len(resp.Kvs) > 0 {
		op.Value = string(resp.Kvs[0].Value)
	}
	h.did(op, err)
	return put
}

// mark raises the mark of a resource that has the name of the queue. The mark is compared with the token and not with
// what etcd knows of its holder, so it may be raised when the lock is held no more.
func (h fencedHolder) mark(ctx context.Context) {
	resource := h.worker.Shards + "/" + strings.TrimSuffix(strings.TrimPrefix(h.part.Prefix, oracle.Keys), "/@/")
	op := registerOp{Op: register.Op{Token: h.token(), Mark: true, Call: sinceBoot()}, Key: marks + resource}
	op.Value = op.Token.String()
	all, err := etcdfence.NewMarks(h.owner.Client(), etcdfence.MarksOptions{})
	if err == nil {
		err = all.Admit(ctx, resource, fencing.Claim{Name: "campaign", Token: op.Token})
	}
	h.did(op, err)
}

// judgeRegisters returns the registers whose histories porcupine does not find linearizable.
func (rec *recorded) judgeRegisters() (violations []string) {
	registers := rec.registers()
	for _, key := range slices.Sorted(maps.Keys(registers)) {
		if err := register.Check(registers[key], decidedWithin); err != nil {
			violations = append(violations, fmt.Sprintf("the history of %s is not linearizable: %v", key, err))
		}
	}
	return violations
}

// registers returns the operations on each register. Those of unknown outcome have an effect if etcd's history has what
// they wrote. A process that was killed has not reported its last ones; they are known by their effects. Each mark in
// etcd's history is an operation of its own: a refused call may have raised the mark before, by a try without a
// reply. For example, Admit of token 20 writes 20 and gets no reply, Admit of 21 writes 21, and the second try of the
// first call finds 21 and is refused; Admit of 19 was refused by the 20 between them.
func (rec *recorded) registers() map[string][]register.Op {
	type effect struct{ key, value string }
	effects := make(map[effect]oracle.Change) // the first change that wrote a value to a register
	for _, c := range rec.Record.Changes {
		if key, value := valueIn(c); value != "" {
			if _, known := effects[effect{key, value}]; !known {
				effects[effect{key, value}] = c
			}
		}
	}
	all := make(map[string][]register.Op)
	reported := make(map[effect]bool)
	for _, op := range rec.Used {
		if op.Unknown {
			c, happened := effects[effect{op.Key, op.Value}]
			if !happened || c.Before < op.Call {
				continue
			}
			op.Return = c.Before
		}
		all[op.Key] = append(all[op.Key], op.Op)
		reported[effect{op.Key, op.Value}] = reported[effect{op.Key, op.Value}] || !op.Read && !op.Mark
	}
	for e, c := range effects {
		if !reported[e] {
			all[e.key] = append(all[e.key], rec.unreported(e.key, e.value, c))
		}
	}
	return all
}

// unreported returns the write that has made a change. Its writer held by the time of its call.
func (rec *recorded) unreported(key, value string, c oracle.Change) register.Op {
	op := register.Op{Value: value, Mark: strings.HasPrefix(key, marks), Return: c.Before}
	for _, h := range rec.Record.Holds {
		if h.Token == 0 || h.Parts[0].Shared || oracle.WriterOf(value) != h.Who && !(op.Mark && h.Token.String() == value) {
			continue
		}
		if op.Token != h.Token || h.Granted < op.Call { // the first of those that have held by one entry
			op.Token, op.Call = h.Token, h.Granted
		}
	}
	return op
}

// valueIn returns what a change wrote to a register; "" if it is no write to one.
func valueIn(c oracle.Change) (key, value string) {
	key = string(c.Kv.Key)
	switch {
	case c.Deleted:
		return key, ""
	case strings.HasPrefix(key, marks):
		_, digits, _ := strings.Cut(string(c.Kv.Value), " ")
		token, _ := holdfast.ParseToken(strings.TrimLeft(digits, "0"))
		return key, token.String()
	case oracle.IsData(key):
		return key, string(c.Kv.Value)
	}
	return key, ""
}
