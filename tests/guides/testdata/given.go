package page

import (
	"context"
	"database/sql"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fencing"
	"github.com/holdfast-go/holdfast/fencing/sqlfence"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/session"
)

// What every document takes for granted.
var (
	ctx   context.Context
	cfg   clientv3.Config
	cli   *clientv3.Client
	opts  *session.Options
	sess  *session.Session
	mu    *locker.Mutex
	lk    *locker.Lock
	el    *election.Election
	claim fencing.Claim
	db    *sql.DB
	tx    *sql.Tx
	g     *sqlfence.Guard
)
