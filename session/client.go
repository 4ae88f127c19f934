package session

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
)

// ClientConfig returns settings of etcd's client that suit sessions; what
// clientv3.Config{Endpoints: endpoints} lacks is said here. Add TLS, Username
// and Password to what it returns, and change what you must:
//
//	cfg := session.ClientConfig("https://10.0.0.1:2379", "https://10.0.0.2:2379", "https://10.0.0.3:2379")
//	cfg.TLS = tlsConfig
//	cli, err := clientv3.New(cfg)
//
// A session works with any client. With etcd's defaults it comes back later
// from an outage, by up to two minutes, and its log is full.
//
//   - DialTimeout 5 s bounds the login in clientv3.New, which without it waits
//     for etcd for good. It bounds no other call: their contexts do.
//   - DialKeepAliveTime 10 s, the least gRPC takes, and DialKeepAliveTimeout 3 s:
//     a connection on which requests hang is pinged, and given up when that is
//     not answered. By default a half-open one is kept until the kernel gives
//     up, a quarter of an hour. On Linux the 3 s bound unacknowledged bytes as
//     well; being less than the 4 s a session gives a request, the next one
//     finds the connection replaced.
//   - PermitWithoutStream false: etcd forbids pings while nothing is asked,
//     and closes the connection at the third.
//   - After a failed attempt to connect, 100 ms until the next, growing to 2 s,
//     with jitter; each may take 5 s. By default the pause grows to 2 minutes,
//     and the lease is gone when etcd has long been back.
//   - MaxUnaryRetries 5, BackoffWaitBetween 50 ms, BackoffJitterFraction 0.5:
//     the client itself repeats a read, a grant or a login often enough to ask
//     each member of a usual cluster and to refresh a token. Beyond that the
//     session repeats, with pauses that grow; the client's do not (by default
//     it repeats 100 times, all clients at the same pace).
//   - AutoSyncInterval 0: the endpoints stay those given. What members
//     advertise may not be reachable from here, or not be in the certificate.
//   - Message sizes are etcd's defaults: 2 MiB to send, more than etcd takes, so
//     that it is etcd that says what is too large; no limit to receive.
//   - Logger zap.NewNop(). By default the client writes a line to stderr at
//     each attempt that fails, even if only its context was cancelled. A session
//     says in its own log and errors what matters. Set it when looking for a
//     fault in the client.
//
// DialOptions holds the pauses between attempts to connect: append to it.
func ClientConfig(endpoints ...string) clientv3.Config {
	return clientv3.Config{
		Endpoints:             endpoints,
		DialTimeout:           5 * time.Second,
		DialKeepAliveTime:     10 * time.Second,
		DialKeepAliveTimeout:  3 * time.Second,
		MaxUnaryRetries:       5,
		BackoffWaitBetween:    50 * time.Millisecond,
		BackoffJitterFraction: 0.5,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: grpcbackoff.Config{
				BaseDelay:  100 * time.Millisecond,
				Multiplier: 1.6,
				Jitter:     0.2,
				MaxDelay:   2 * time.Second,
			},
			MinConnectTimeout: 5 * time.Second,
		})},
		Logger: zap.NewNop(),
	}
}
