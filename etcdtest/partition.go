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

// Partition separates the given members from the others with a black hole, as [Link.BlackHole] does a client from a
// member, while clients still reach all of them. When it returns nothing passes any more; those on the side of fewer than
// half will find out that they have no leader, or lead no more, after an election timeout. A partition that there was
// before ends.
func (c *Cluster) Partition(members ...*Server) {
	apart := make(map[string]bool)
	for _, s := range members {
		apart[s.spec.Caller] = true
	}
	c.wires.update(func() { c.wires.apart = apart })
	for _, s := range c.members {
		s.peers.settle()
	}
}

// Delay makes all that the members send to each other arrive d later, as over a long distance. A commit then takes twice
// as long, or four times where the client has asked a member that does not lead, and so do linearizable reads. An election
// takes at least twice as long, too: members whose election timeout is not longer than that find no leader any more.
func (c *Cluster) Delay(d time.Duration) { c.wires.update(func() { c.wires.delay = d }) }

// Heal ends the partition and the delay. What was held arrives: messages between members, and requests of clients that one
// member has passed on to another.
func (c *Cluster) Heal() { c.wires.update(func() { c.wires.apart, c.wires.delay = nil, 0 }) }

// wires are the networks between the members of a cluster, one for each two of them.
//
// The members reach each other through proxies, one before each. Such a proxy has to know who is calling, and all
// callers come from 127.0.0.1; nor does etcd say who it is in all its requests (not where a follower passes a renewal on
// to the leader, for one). But TLS begins with the name of the server that the caller believes to call, and etcd lets us
// choose that: each member asks for its own name. So the members speak TLS to the proxies, which end it; behind them there
// is plain HTTP.
type wires struct {
	mu    sync.Mutex // protects what follows
	all   map[[2]string]*network
	apart map[string]bool // the members on one side of the partition
	delay time.Duration
}

func newWires() *wires { return &wires{all: make(map[[2]string]*network)} }

// to returns the arrival at the proxy before a member.
func (w *wires) to(member string) arrival {
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
			return nil, nil, errors.New("a caller without a name")
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
		w.judge(n, a, b)
	}
	return n
}

// update changes the faults and applies them.
func (w *wires) update(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	for ends, n := range w.all {
		w.judge(n, ends[0], ends[1])
	}
}

// judge makes a black hole between two members if they are on different sides of the partition. It is called with mu held.
func (w *wires) judge(n *network, a, b string) {
	hole := w.apart[a] != w.apart[b]
	n.update(func(f *networkFaults) { f.held, f.delay = [2]bool{requests: hole, replies: hole}, w.delay })
}

// tlsConfig has a certificate that nobody checks.
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
