package etcdfake

import (
	"reflect"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// This file reads and sets fields by name: they are not exported, or their types differ between etcd's clients 3.6 and
// 3.7.

// flag reads an option of a watch that has no accessor in clientv3.
func flag(op clientv3.Op, name string) bool {
	return reflect.ValueOf(op).FieldByName(name).Bool()
}

// withHeader returns resp with header h. The field is a struct in 3.6 and a pointer in 3.7.
func withHeader(h *pb.ResponseHeader, resp clientv3.WatchResponse) clientv3.WatchResponse {
	value := reflect.ValueOf(h)
	field := reflect.ValueOf(&resp).Elem().FieldByName("Header")
	if field.Kind() == reflect.Struct {
		value = value.Elem()
	}
	field.Set(value)
	return resp
}

// fromProto returns a response as clientv3's Watcher does. Events are of different types in 3.6.
func fromProto(r *pb.WatchResponse) clientv3.WatchResponse {
	resp := clientv3.WatchResponse{CompactRevision: r.CompactRevision, Created: r.Created, Canceled: r.Canceled}
	if r.CancelReason != "" {
		resp = canceled(r.CancelReason)
		resp.CompactRevision, resp.Created = r.CompactRevision, r.Created
	}
	for _, ev := range r.Events {
		resp.Events = append(resp.Events, (*clientv3.Event)(ev)) //nolint:unconvert // needed with 3.6
	}
	return withHeader(r.Header, resp)
}

// canceled returns the last response of a watch that the server cancels. The field of the reason is not exported in
// 3.6.
func canceled(reason string) clientv3.WatchResponse {
	resp := withHeader(&pb.ResponseHeader{}, clientv3.WatchResponse{Canceled: true})
	field := reflect.ValueOf(&resp).Elem().FieldByNameFunc(func(name string) bool {
		return name == "CancelReason" || name == "cancelReason"
	})
	reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem().SetString(reason)
	return resp
}
