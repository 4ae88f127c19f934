// Package register checks with porcupine that a history of a fenced register is linearizable: that there is an order of
// its operations, each between its call and its return, in which no write has a smaller token than one before it, and
// each read returns what was written last.
package register

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-go/holdfast"
)

// An Op is a write or a read of a register. One of unknown outcome must be left out if it had no effect, and otherwise
// have returned when that was seen.
type Op struct {
	Read    bool
	Token   holdfast.Token `json:",omitzero"` // of a write; 0: others may write beside it, as readers do
	Value   string         // written, or read
	Refused bool           // the write was, because its token is too small
	Mark    bool           // the register compares tokens, so that only a larger one makes it refuse
	Call    time.Duration
	Return  time.Duration
}

// state is what a register has in the order of operations that is looked for.
type state struct {
	token holdfast.Token // the largest
	known bool           // the value is: there was a write or a read
	value string
}

func (s state) step(op Op) (ok bool, next state) {
	switch {
	case op.Read:
		return !s.known || op.Value == s.value, state{s.token, true, op.Value}
	case op.Refused:
		return !op.Mark || op.Token < s.token, s
	case op.Token == 0:
		return true, state{s.token, true, op.Value}
	default:
		return op.Token >= s.token, state{op.Token, true, op.Value}
	}
}

var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(s, in, _ any) (bool, any) { return s.(state).step(in.(Op)) },
}

// Check returns nil if the history of one register is linearizable. It is an error, too, if that cannot be found out in
// time.
func Check(history []Op, within time.Duration) error {
	ops := make([]porcupine.Operation, len(history))
	for i, op := range history {
		ops[i] = porcupine.Operation{Input: op, Call: int64(op.Call), Return: int64(op.Return)}
	}
	switch porcupine.CheckOperationsTimeout(model, ops, within) {
	case porcupine.Ok:
		return nil
	case porcupine.Illegal:
		return fmt.Errorf("no order of its %d operations explains what they returned", len(ops))
	default:
		return fmt.Errorf("unknown: porcupine has not decided about %d operations within %v", len(ops), within)
	}
}
