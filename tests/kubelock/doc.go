// Package kubelock tests contrib/kubelock against a real etcd, with client-go's elector and a controller-runtime
// manager. It is behind a build tag, because to compile Kubernetes takes minutes:
//
//	go test -race -tags kubernetes ./tests/kubelock
package kubelock
