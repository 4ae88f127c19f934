package surface_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"go/types"
	"reflect"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/backoff"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/etcdfake"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/etcdfence"
	"github.com/holdfast-go/holdfast/fencing/memfence"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
	"github.com/holdfast-go/holdfast/lastrun"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/member"
	"github.com/holdfast-go/holdfast/session"
	"github.com/holdfast-go/holdfast/shard"
)

// Nothing can wait with a nil context. A call that can return an error returns an ArgumentError that names it, before
// anything is sent.
func TestNilContextIsAnErrorOfEachCall(t *testing.T) {
	type call struct{ receiver, method string } // a function has no receiver
	var calls []call
	exported(t, func(name string, object types.Object) {
		if f, ok := object.(*types.Func); ok && waits(f) {
			calls = append(calls, call{"", name})
		}
		for _, m := range methods(object) {
			if waits(m) {
				calls = append(calls, call{name, m.Name()})
			}
		}
	})
	if len(calls) < 90 {
		t.Errorf("only %d calls take a context", len(calls))
	}
	etcdfake.Test(t, func(t *testing.T, srv *etcdfake.Server) {
		k := newKit(t, srv)
		for _, c := range calls {
			v, name := reflect.ValueOf(k.values[c.receiver+c.method]), c.method
			if c.receiver != "" {
				name = c.receiver + "." + c.method
				if v = reflect.ValueOf(k.values[c.receiver]); v.IsValid() {
					v = v.MethodByName(c.method)
				}
			}
			if !v.IsValid() {
				t.Errorf("add what %s is called on", name)
				continue
			}
			before := latest(srv)
			var bad *holdfast.ArgumentError
			if err := k.call(name, v); !errors.As(err, &bad) || bad.Argument != "ctx" {
				t.Errorf("%s: %v", name, err)
			}
			if latest(srv) != before {
				t.Errorf("%s has written", name)
			}
		}
	})
}

// waits reports whether f takes a context and can return an error: its own, that of a range, or that of a Commit. What
// cannot, such as WithContext or FromContext, only derives from the context or looks into it, and panics as
// context.WithValue does.
func waits(f *types.Func) bool {
	takes := false
	for p := range f.Signature().Params().Variables() {
		takes = takes || p.Type().String() == "context.Context"
	}
	results := f.Signature().Results()
	if !takes || results.Len() == 0 || f.FullName() == module+"/backoff.ContextErr" {
		return false
	}
	switch last := results.At(results.Len() - 1).Type(); {
	case last.String() == "error", last.String() == "go.etcd.io/etcd/client/v3.Txn":
		return true
	default:
		named, ok := last.(*types.Named)
		return ok && named.Obj().Name() == "Seq2"
	}
}

// kit has what calls are made on, and what they are made with.
type kit struct {
	t      *testing.T
	values map[string]any       // by the name of the type or function
	args   map[reflect.Type]any // by type; the zero value for any other
}

func newKit(t *testing.T, srv *etcdfake.Server) *kit {
	ctx, cli := t.Context(), srv.Client(t)
	sess := must(session.New(ctx, cli, session.Options{Owner: "a"}))
	t.Cleanup(func() { _ = sess.Close(context.Background()) })
	db := must(sql.Open("sqlite", ":memory:"))
	t.Cleanup(func() { _ = db.Close() })
	mu, rw, el := locker.NewMutex(sess, "job"), locker.NewRWMutex(sess, "rw"), election.New(sess, "el")
	set := locker.NewSet(sess, locker.Write("one"), locker.Write("two"))
	sem := locker.NewSemaphore(sess, "sem", 2)
	lock := must(locker.NewMutex(sess, "held").Lock(ctx))
	read := locker.NewRWMutex(sess, "read")
	guard := must(sqlfence.New(db, sqlfence.SQLite, sqlfence.Options{}))
	var tx sqlfence.Tx = unused{t}
	k := &kit{t: t, values: map[string]any{
		"admin.Client": admin.New(cli, admin.Options{}), "backoff.Retry": backoff.Retry,
		"lastrun.Record": lastrun.Record, "lastrun.Read": lastrun.Read,
		"etcdfence.BumpEpoch": etcdfence.BumpEpoch,
		"etcdfence.Epoch":     etcdfence.Epoch, "member.Join": member.Join, "session.New": session.New,
		"session.NewClient": session.NewClient,
		"locker.Attach":     locker.Attach, "locker.AttachRead": locker.AttachRead,
		"locker.AttachPermit": locker.AttachPermit,
		"election.Election":   el, "election.Reader": election.NewReader(cli, "el"),
		"election.Term":    must(election.New(sess, "led").With(election.Options{Value: "v"}).Campaign(ctx)),
		"etcdfence.Marks":  must(etcdfence.NewMarks(cli, etcdfence.MarksOptions{})),
		"etcdfence.Writer": etcdfence.NewWriter(lock),
		"memfence.Store":   memfence.New(memfence.Options{}), "sqlfence.Guard": guard,
		"sqlfence.Marks":          must(sqlfence.NewMarks(sqlfence.SQLite, sqlfence.Options{})),
		"locker.DowngradableLock": must(locker.NewRWMutex(sess, "down").LockDowngradable(ctx)), "locker.Lock": lock,
		"locker.Mutex": mu, "locker.Permit": must(sem.Acquire(ctx, 1)), "locker.RWMutex": rw,
		"locker.ReadLock": must(read.RLock(ctx)), "locker.Semaphore": sem, "locker.Set": set,
		"locker.SetLock": must(set.Lock(ctx)), "locker.TreeMutex": locker.NewTreeMutex(sess, "a/b"),
		"member.Member":   must(member.Join(ctx, sess, "group", member.Options{})),
		"member.Reader":   member.NewReader(cli, "group"),
		"session.Session": sess, "shard.Reader": shard.NewReader(cli, "orders"), "shard.Shards": shard.New(sess, "orders", 2),
	}}
	k.args = make(map[reflect.Type]any)
	for _, v := range []any{
		cli, sess, "name", 1, int64(1), time.Second, holdfast.KindLock, holdfast.Token(1),
		fencing.Claim{Name: "job", Token: 1},
	} {
		k.args[reflect.TypeOf(v)] = v
	}
	k.args[reflect.TypeFor[clientv3.KV]()] = cli
	k.args[reflect.TypeFor[fencing.Source]()] = lock
	k.args[reflect.TypeFor[fencing.Holder]()] = lock
	k.args[reflect.TypeFor[sqlfence.Tx]()] = tx
	return k
}

// unused is a transaction in which no statement may run.
type unused struct{ t *testing.T }

func (u unused) Run(_ context.Context, query string, _, _ []any) error {
	u.t.Errorf("%s was run", query)
	return nil
}

// latest returns the revision of the latest put that stands.
func latest(srv *etcdfake.Server) (revision int64) {
	for _, kv := range srv.Keys("") {
		revision = max(revision, kv.ModRevision)
	}
	return revision
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// call calls a function with a nil context and returns its error, or what it panics with.
func (k *kit) call(name string, f reflect.Value) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	var in []reflect.Value
	for i := range f.Type().NumIn() {
		if typ := f.Type().In(i); i < f.Type().NumIn()-1 || !f.Type().IsVariadic() {
			in = append(in, k.argument(name, typ))
		}
	}
	out := f.Call(in)
	last := out[len(out)-1]
	if txn, ok := last.Interface().(clientv3.Txn); ok {
		_, err := txn.Commit()
		return err
	}
	if last.Kind() == reflect.Func { // a range
		for _, second := range last.Seq2() {
			err, _ = second.Interface().(error)
			return err
		}
	}
	err, _ = last.Interface().(error)
	return err
}

func (k *kit) argument(name string, typ reflect.Type) reflect.Value {
	if v, ok := k.args[typ]; ok {
		return reflect.ValueOf(v).Convert(typ)
	}
	if typ.Kind() == reflect.Func {
		return reflect.MakeFunc(typ, func([]reflect.Value) (out []reflect.Value) {
			k.t.Errorf("%s calls the function", name)
			for i := range typ.NumOut() {
				out = append(out, reflect.Zero(typ.Out(i)))
			}
			return out
		})
	}
	return reflect.Zero(typ)
}
