package main

import (
	"context"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"
)

var _ grpc.ServerOption

func begin(ctx context.Context, conn *pgx.Conn) (pgx.Tx, error) { return conn.Begin(ctx) }
