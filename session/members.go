package session

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/internal/requests"
)

// list lists the members, on a goroutine that Close joins, unless that is being done.
func (w *watches) list() {
	if w.key.streams == nil || w.key.lease.Context().Err() != nil {
		return
	}
	w.mu.Lock()
	listing := w.listing
	w.listing, w.hurried = true, false
	w.mu.Unlock()
	if listing {
		return
	}
	w.work.Go(func(context.Context) {
		voters, next := w.members(), listEvery
		if voters == nil {
			next = listSpread
		}
		w.listed(voters, len(w.key.client.Endpoints()))
		w.mu.Lock()
		hurried := w.hurried
		w.mu.Unlock()
		if !hurried {
			w.again.Reset(next)
		}
	})
}

// listed records who votes. If that is not known, those known go on counting: etcd is asked again.
func (w *watches) listed(voters map[uint64]bool, endpoints int) {
	var strays []func()
	w.mu.Lock()
	w.listing = false
	if voters != nil {
		w.voters, w.endpoints = voters, endpoints
		for _, s := range w.slots {
			if s.member != 0 && !voters[s.member] {
				strays = append(strays, s.end)
			}
		}
	}
	w.publishLocked()
	w.mu.Unlock()
	for _, end := range strays {
		end()
	}
	w.openSlots()
}

// members returns the IDs of the members that vote, or nil if they are not known.
func (w *watches) members() map[uint64]bool {
	resp, _, err := requests.Once(w.key.lease.Context(), w.key.sender, requests.Unhurried,
		func(ctx context.Context) (*pb.MemberListResponse, error) {
			request := &pb.MemberListRequest{Linearizable: true}
			resp, err := pb.NewClusterClient(w.key.streams).MemberList(ctx, request, grpc.WaitForReady(true))
			return resp, clientv3.ContextError(ctx, err)
		})
	if err != nil || resp.Header.GetClusterId() != w.key.lease.Cluster() {
		return nil
	}
	voters := make(map[uint64]bool)
	for _, m := range resp.Members {
		if !m.IsLearner {
			voters[m.ID] = true
		}
	}
	return voters
}
