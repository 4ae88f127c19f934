package surface_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/member"
	"github.com/holdfast-go/holdfast/shard"
)

// A handle is begun and ended with the words of its kind, as the package documentation of holdfast lists them. Apart
// from these, what holds has the same methods, and none has the word of another kind.
func TestHandlesHaveTheSameMethods(t *testing.T) {
	var (
		ends  = []string{"Unlock", "Release", "Resign", "Leave", "Close"}
		every = []string{"Check", "Client", "Lease", "String"}
		holds = append([]string{"AcquiredRevision", "Done", "Holding", "WithContext"}, every...)
		one   = []string{"Key", "Name"}
		many  = []string{"Keys", "Names"}
	)
	for _, h := range []struct {
		handle any
		end    string // "": its function ends it
		has    []string
		token  bool // it excludes all others
	}{
		{&locker.Lock{}, "Unlock", append(holds, one...), true},
		{&locker.DowngradableLock{}, "Unlock", append(holds, one...), true},
		{&locker.ReadLock{}, "Unlock", append(holds, one...), false},
		{&locker.SetLock{}, "Unlock", append(append(holds, many...), "Name"), true}, // of its only writer
		{&locker.Permit{}, "Release", append(holds, one...), false},
		{&election.Term{}, "Resign", append(holds, one...), true},
		{&shard.Shard{}, "", append(holds, one...), true},
		{&member.Member{}, "Leave", append(every, one...), false}, // it excludes none, and outlives its leases
	} {
		of := reflect.TypeOf(h.handle)
		for _, name := range h.has {
			if _, has := of.MethodByName(name); !has {
				t.Errorf("%v has no %s", of, name)
			}
		}
		if _, has := of.MethodByName("Token"); has != h.token {
			t.Errorf("%v has a token: %v", of, has)
		}
		for _, name := range slices.Concat(ends, one, many) {
			if _, has := of.MethodByName(name); has && name != h.end && !slices.Contains(h.has, name) {
				t.Errorf("%v has %s", of, name)
			}
		}
		if _, has := of.MethodByName(h.end); h.end != "" && !has {
			t.Errorf("%v has no %s", of, h.end)
		}
	}
}
