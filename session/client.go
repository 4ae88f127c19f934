package session

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
)

// ClientConfig returns settings of etcd's client that suit sessions. Add TLS, Username and Password; append to
// DialOptions.
//
// A session works with any client. With etcd's defaults it recovers up to two minutes after an outage, and the client
// logs a lot. Changed are:
//
//   - DialTimeout 5 s bounds the login in clientv3.New, which otherwise waits forever.
//   - DialKeepAliveTime 10 s (gRPC's minimum) and DialKeepAliveTimeout 3 s: by default a half-open connection is kept
//     for a quarter of an hour. On Linux the 3 s also bound unacknowledged bytes; they are less than the 4 s of a
//     session's request, so the next one finds a new connection.
//   - PermitWithoutStream false: etcd closes connections that ping while no request is in flight.
//   - Pauses between attempts to connect: 100 ms, growing to 2 s, with jitter (by default to 2 minutes). An attempt may
//     take 5 s.
//   - MaxUnaryRetries 5, BackoffWaitBetween 50 ms, BackoffJitterFraction 0.5: enough to ask each member of a usual
//     cluster. After that the session repeats, with growing pauses.
//   - AutoSyncInterval 0: advertised addresses may not be reachable, or not be in the certificate.
//   - Message sizes: 2 MiB to send, more than etcd accepts, so that etcd refuses what is too large; no limit to
//     receive.
//   - Logger zap.NewNop(): the session's log and errors have what matters. Set one to debug the client.
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
