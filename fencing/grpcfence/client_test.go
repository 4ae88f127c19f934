package grpcfence_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/grpcfence"
	"github.com/holdfast-go/holdfast/fencing/memfence"
)

func TestHolderThatCannotBeUsedSendsNothing(t *testing.T) {
	svc := &service{}
	conn, _ := serve(t, svc, grpcfence.NewRequire(resourceOf, grpcfence.Options{}), grpcfence.Client{})
	allowing := grpcfence.NewRequire(resourceOf, grpcfence.Options{AllowMissing: true})
	allow, _ := serve(t, svc, allowing, grpcfence.Client{AllowMissing: true})
	lost := errors.New("lost")
	gone := &holder{name: "lock/a", token: 7, err: lost}
	for what, c := range map[string]struct {
		ctx  context.Context
		conn *grpc.ClientConn
		want error
	}{
		"lost":                  {fencing.NewContext(t.Context(), gone), conn, lost},
		"lost, missing allowed": {fencing.NewContext(t.Context(), gone), allow, lost},
		"no token":              {holding("lock/a", 0), conn, holdfast.ErrNoToken},
		"no name":               {holding("", 7), conn, fencing.ErrBadClaim},
		"no holder":             {t.Context(), conn, holdfast.ErrNoToken},
		"is set already": {metadata.AppendToOutgoingContext(holding("lock/a", 7), "Fencing-Token", "9"), conn,
			fencing.ErrBadClaim},
	} {
		for how, call := range calls {
			if err := call(c.ctx, c.conn); !errors.Is(err, c.want) || svc.count() != 0 {
				t.Errorf("%s, %s: landed %d, %v", how, what, svc.count(), err)
			}
		}
	}
	for how, call := range calls {
		if err := call(t.Context(), allow); err != nil {
			t.Errorf("%s with AllowMissing: %v", how, err)
		}
	}
}

func TestHolderLostDuringAStreamSendsNoMore(t *testing.T) {
	svc := &service{}
	conn, _ := serve(t, svc, grpcfence.NewRequire(resourceOf, grpcfence.Options{}), grpcfence.Client{})
	h := &holder{name: "lock/a", token: 7}
	ctx, cancel := context.WithCancel(fencing.NewContext(t.Context(), h))
	defer cancel()
	s, err := open(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	if err := exchange(s); err != nil {
		t.Fatal(err)
	}
	lost := errors.New("lost")
	h.lose(lost)
	if err := exchange(s); !errors.Is(err, lost) || svc.count() != 1 {
		t.Errorf("landed %d, %v", svc.count(), err)
	}
}

// The holder is only suspended: its context goes on, and what ends the stream is the refusal.
func TestRefusedMessageEndsTheStreamAndFreesTheResource(t *testing.T) {
	svc := &service{}
	guard := grpcfence.NewGuard(memfence.New(memfence.Options{}), resourceOf, grpcfence.Options{})
	conn, _ := serve(t, svc, guard, grpcfence.Client{})
	h := &holder{name: "lock/a", token: 7}
	ctx, cancel := context.WithCancel(fencing.NewContext(t.Context(), h))
	defer cancel()
	s, err := open(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	if err := exchange(s); err != nil {
		t.Fatal(err)
	}
	suspended := errors.New("suspended")
	h.lose(suspended)
	if err := exchange(s); !errors.Is(err, suspended) {
		t.Fatal(err)
	}
	h.lose(nil)
	if err := put(ctx, conn, "a"); err != nil { // waits for the resource
		t.Error(err)
	}
	if err := s.RecvMsg(new(wrapperspb.StringValue)); status.Code(err) != codes.Canceled {
		t.Errorf("the refused stream: %v", err)
	}
}
