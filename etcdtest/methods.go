package etcdtest

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// streams holds the methods of etcd's API, and whether they are streams. The names are unique over all services.
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

// mustKnow returns method, or panics: a fault for a method that does not exist would be a test that tests nothing.
func mustKnow(method string) string {
	if _, ok := streams[method]; !ok {
		panic(fmt.Sprintf("etcdtest: etcd has no method %q", method))
	}
	return method
}
