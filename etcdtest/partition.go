package etcdtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"sync"
	"time"
)

// Partition cuts the given members off from the others, with black holes; clients still reach all of them. When it
// returns, no byte passes. A minority finds out after an election timeout that it has no leader, or no longer leads. A
// new partition ends the previous one. Until then use the helpers of a member of the majority, such as
// c.Member(1).WaitForKeys: those of the Cluster may ask one that is cut off, which answers late, or not at all.
func (c *Cluster) Partition(members ...*Server) {
	apart := make(map[string]bool)
	for _, s := range members {
		apart[s.spec.Caller] = true
	}
	c.wires.change(func() { c.wires.apart = apart })
	for _, s := range c.Members() {
		s.peers.settle()
	}
}

// Delay makes everything members send each other arrive d later. A commit and a linearizable read then take 2d through
// the leader and 4d through another member, an election 2d at least: choose an election timeout well above that.
func (c *Cluster) Delay(d time.Duration) { c.wires.change(func() { c.wires.delay = d }) }

// Heal ends the partition and the delay. Messages that were held arrive.
func (c *Cluster) Heal() { c.wires.change(func() { c.wires.apart, c.wires.delay = nil, 0 }) }

// wires are the networks between the members of a cluster, one for each pair.
//
// Members reach each other through proxies, one in front of each. A proxy must know which member calls. The address
// does not tell, as all are 127.0.0.1, and neither do all requests: a renewal that a follower forwards to the leader
// does not. But TLS begins with the server name the caller expects, and etcd can be told which: each member uses its
// own name. So members speak TLS to the proxies, which terminate it; behind them is plain HTTP.
type wires struct {
	mu    sync.Mutex // protects the rest
	all   map[[2]string]*network
	apart map[string]bool // members on one side of the partition
	delay time.Duration
}

func newWires() *wires { return &wires{all: make(map[[2]string]*network)} }

// to returns the accept function of the proxy in front of a member.
func (w *wires) to(member string) acceptFunc {
	return func(c *net.TCPConn) (duplex, *network, error) {
		cfg, err := tlsConfig()
		if err != nil {
			return nil, nil, err
		}
		caller := tls.Server(c, cfg)
		if err := caller.HandshakeContext(context.Background()); err != nil { // a reset of c ends it
			return nil, nil, err
		}
		name := caller.ConnectionState().ServerName
		if name == "" {
			return nil, nil, errors.New("the caller has sent no server name")
		}
		return caller, w.between(name, member), nil
	}
}

func (w *wires) between(a, b string) *network {
	if a > b {
		a, b = b, a
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n, ok := w.all[[2]string{a, b}]
	if !ok {
		n = &network{}
		w.all[[2]string{a, b}] = n
		w.update(n, a, b)
	}
	return n
}

// change changes the faults and applies them.
func (w *wires) change(faults func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	faults()
	for ends, n := range w.all {
		w.update(n, ends[0], ends[1])
	}
}

// update sets the faults of the network between a and b: a black hole where the partition is between them. The caller
// holds mu.
func (w *wires) update(n *network, a, b string) {
	hole := w.apart[a] != w.apart[b]
	n.update(func(f *networkFaults) { f.held, f.delay = [2]bool{requests: hole, replies: hole}, w.delay })
}

// tlsConfig has a certificate that is not verified.
var tlsConfig = sync.OnceValues(func() (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(1, 0, 0)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		Certificates:     []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}},
		CurvePreferences: []tls.CurveID{tls.X25519}, // the cheapest
	}, nil
})
