// Etcd runs an etcd of one member until Ctrl-C, to try things out with, and prints its address:
//
//	go run ./examples/etcd
//
// Its data is in a temporary directory, which goes with it. It listens on loopback only.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/holdfast-go/holdfast/etcdtest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	srv, err := etcdtest.New(etcdtest.Options{DefaultTicks: true})
	if err != nil {
		log.Panic(err)
	}
	defer srv.Close()
	fmt.Println("--endpoints", srv.Endpoints()[0])
	<-ctx.Done()
}
