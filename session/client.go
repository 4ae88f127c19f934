package session

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
)

// ClientConfig returns settings of etcd's client that suit sessions. Add TLS, Username and Password, and change
// what you need to:
//
//	cfg := session.ClientConfig("https://10.0.0.1:2379", "https://10.0.0.2:2379", "https://10.0.0.3:2379")
//	cfg.TLS = tlsConfig
//	cli, err := clientv3.New(cfg)
//
// A session works with any client. With clientv3.Config{Endpoints: endpoints} it recovers from an outage up to two
// minutes later, and the client logs a lot.
//
//   - DialTimeout 5 s bounds the login in clientv3.New, which otherwise waits for etcd forever. It bounds no other
//     call: their contexts do.
//   - DialKeepAliveTime 10 s (gRPC's minimum) and DialKeepAliveTimeout 3 s: the client pings a connection on which
//     requests hang, and gives it up when the ping is not answered. By default a half-open connection is kept until
//     the kernel gives up, a quarter of an hour. On Linux the 3 s also bound unacknowledged bytes. They are less
//     than the 4 s of a session's request, so the next request finds a new connection.
//   - PermitWithoutStream false: etcd does not allow pings while no request is in flight, and closes the connection
//     after the third.
//   - After a failed attempt to connect the client pauses for 100 ms, growing to 2 s, with jitter; an attempt may
//     take 5 s. By default the pause grows to 2 minutes, and the lease is lost long after etcd is back.
//   - MaxUnaryRetries 5, BackoffWaitBetween 50 ms, BackoffJitterFraction 0.5: the client repeats reads, grants and
//     logins often enough to ask each member of a usual cluster and to refresh a token. After that the session
//     repeats, with growing pauses. (By default the client repeats 100 times, and all clients at the same pace.)
//   - AutoSyncInterval 0: the endpoints stay the given ones. The addresses that members advertise may not be
//     reachable from here, or may not be in the certificate.
//   - Message sizes are etcd's defaults: 2 MiB to send, which is more than etcd accepts, so that etcd refuses what
//     is too large; no limit to receive.
//   - Logger zap.NewNop(). By default the client writes a line to stderr for each failed attempt, even if its
//     context was canceled. The session's own log and errors have what matters. Set a Logger to debug the client.
//
// DialOptions has the pauses between attempts to connect: append to it.
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
