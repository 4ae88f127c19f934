package etcdtest

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// streams has the methods of etcd's API; the value says whether a method is a stream. Names are unique across services.
var streams = func() map[string]bool {
	m := make(map[string]bool)
	for _, service := range []grpc.ServiceDesc{
		pb.KV_ServiceDesc, pb.Watch_ServiceDesc, pb.Lease_ServiceDesc,
		pb.Cluster_ServiceDesc, pb.Maintenance_ServiceDesc, pb.Auth_ServiceDesc,
	} {
		for _, d := range service.Methods {
			m[d.MethodName] = false
		}
		for _, d := range service.Streams {
			m[d.StreamName] = true
		}
	}
	return m
}()

// mustKnow panics if etcd has no such method, since a fault for it would never happen.
func mustKnow(method string) string {
	if _, ok := streams[method]; !ok {
		panic(fmt.Sprintf("etcdtest: etcd has no method %q", method))
	}
	return method
}
