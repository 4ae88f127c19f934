package surface_test

import (
	"fmt"
	"go/types"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcderr"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/grpcfence"
	"github.com/holdfast-go/holdfast/fencing/httpfence"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/member"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/shard"
	"github.com/holdfast-go/holdfast/view"
)

// zero are the zero values of the exported types with a String or Error method.
var zero = map[string]any{
	"admin.Entry":             admin.Entry{},
	"admin.HolderError":       &admin.HolderError{},
	"admin.MemberError":       &admin.MemberError{},
	"admin.MembersError":      &admin.MembersError{},
	"admin.ShardError":        &admin.ShardError{},
	"election.Term":           &election.Term{},
	"etcderr.Class":           etcderr.Class(0),
	"fencing.Claim":           fencing.Claim{},
	"fencing.ClaimError":      &fencing.ClaimError{},
	"fencing.MarkError":       &fencing.MarkError{},
	"fencing.OtherNameError":  &fencing.OtherNameError{},
	"grpcfence.Error":         &grpcfence.Error{},
	"httpfence.ResponseError": &httpfence.ResponseError{},
	"sqlfence.Dialect":        sqlfence.Dialect(0),
	"sqlfence.SchemaError":    &sqlfence.SchemaError{},
	"holdfast.ArgumentError":  &holdfast.ArgumentError{},
	"holdfast.Cause":          holdfast.Cause(0),
	"holdfast.KickError":      &holdfast.KickError{},
	"holdfast.LimitError":     &holdfast.LimitError{},
	"holdfast.TicketError":    &holdfast.TicketError{},
	"holdfast.LostError":      &holdfast.LostError{},
	"holdfast.NameError":      &holdfast.NameError{},
	"holdfast.State":          holdfast.State(0),
	"holdfast.Token":          holdfast.Token(0),
	"view.AcquireError":       &view.AcquireError{},
	"locker.DowngradableLock": &locker.DowngradableLock{},
	"locker.Lock":             &locker.Lock{},
	"locker.Permit":           &locker.Permit{},
	"locker.ReadLock":         &locker.ReadLock{},
	"locker.SetLock":          &locker.SetLock{},
	"locker.Ticket":           locker.Ticket{},
	"member.Member":           &member.Member{},
	"session.CallbackError":   &session.CallbackError{},
	"session.Session":         &session.Session{},
	"shard.CountError":        &shard.CountError{},
	"shard.Shard":             &shard.Shard{},
	"view.Entry":              view.Entry{},
	"view.Notice":             view.Notice{},
	"view.Place":              view.Place{},
	"view.Run":                view.Run{},
}

// A value that a test makes, or that is printed before it is filled in, has a text and does not panic: fmt would
// write %!v(PANIC=...) in its place.
func TestZeroValueOfEachTypeHasAText(t *testing.T) {
	seen := make(map[string]bool)
	exported(t, func(name string, object types.Object) {
		for _, m := range methods(object) {
			text := m.Name() == "String" || m.Name() == "Error"
			if !text || m.Signature().Params().Len() > 0 {
				continue
			}
			value, known := zero[name]
			if !known {
				t.Errorf("add the zero value of %s", name)
				continue
			}
			seen[name] = true
			if got := fmt.Sprint(value); got == "" && m.Name() == "Error" || strings.Contains(got, "%!") {
				t.Errorf("%s: %q", name, got)
			}
		}
	})
	if len(seen) != len(zero) {
		t.Errorf("%d of %d types have a text", len(seen), len(zero))
	}
}
