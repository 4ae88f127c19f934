// Package member makes a program a member of a cluster of package etcdtest. It is a module of its own, because each of
// the programs beside it links another release of etcd's server.
package member

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdmain"
)

// env is what package etcdtest has in the environment of a member's process.
const env = "ETCDTEST_MEMBER"

// Main is the program: a member if package etcdtest has started it, and etcd otherwise.
func Main() {
	encoded, ok := os.LookupEnv(env)
	if !ok {
		etcdmain.Main(os.Args)
		return
	}
	if err := run(encoded); err != nil {
		fmt.Fprintln(os.Stderr, "etcdtest: member:", err)
		os.Exit(1)
	}
}

// A spec is what the member needs to start. It and what follows are as in package etcdtest, which cannot be imported:
// it links a server.
type spec struct {
	Name, Dir, Client, Caller, Peers, Cluster string
	Join, Fsync, Slow                         bool
}

func (s spec) config() *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = s.Name
	cfg.Dir = s.Dir
	cfg.ListenClientUrls = []url.URL{{Scheme: "http", Host: s.Client}}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	cfg.ListenPeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "https", Host: s.Peers}}
	cfg.PeerTLSInfo = transport.TLSInfo{ServerName: s.Caller, InsecureSkipVerify: true}
	cfg.InitialCluster = s.Cluster
	if s.Join {
		cfg.ClusterState = embed.ClusterStateFlagExisting
	}
	cfg.StrictReconfigCheck = false
	cfg.SocketOpts.ReusePort = true
	if !s.Slow {
		cfg.TickMs, cfg.ElectionMs = 10, 100
	}
	cfg.UnsafeNoFsync = !s.Fsync
	cfg.LogLevel, cfg.LogOutputs = "info", []string{s.Dir + ".log"} // beside its directory
	cfg.EnableGRPCGateway = false
	return cfg
}

func run(encoded string) error {
	var s spec
	if err := json.Unmarshal([]byte(encoded), &s); err != nil {
		return err
	}
	etcd, err := embed.StartEtcd(s.config())
	if err != nil {
		return err
	}
	fmt.Println(etcd.Peers[0].Addr())
	go func() { // ends with the process
		<-etcd.Server.ReadyNotify()
		fmt.Println("ready")
	}()
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return <-etcd.Err()
}
