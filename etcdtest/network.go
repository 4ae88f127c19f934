package etcdtest

import (
	"io"
	"sync"
	"time"
)

// The two directions of a connection.
const (
	requests = iota // from the client
	replies         // to the client
)

// A network is the state of the wire behind some proxies. The zero value has no faults.
type network struct {
	mu      sync.Mutex // protects faults, changed
	faults  networkFaults
	changed chan struct{} // closed at the next change; nil until get needs it
}

type networkFaults struct {
	cut   bool          // connections are reset
	held  [2]bool       // by direction: bytes wait
	delay time.Duration // in each direction
}

// get returns the current faults, and a channel that is closed when they change.
func (n *network) get() (networkFaults, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.changed == nil {
		n.changed = make(chan struct{})
	}
	return n.faults, n.changed
}

func (n *network) update(change func(*networkFaults)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(&n.faults)
	if n.changed != nil {
		close(n.changed)
		n.changed = nil
	}
}

// A pipe is one direction of a connection through a network. Its reader always reads; its writer writes in the same
// order when the network allows it. A pipe is unbounded: the flow control of HTTP/2 limits what it holds, and a limit
// here would turn latency into low throughput.
type pipe struct {
	network   *network
	direction int
	done      <-chan struct{} // closed when the connection is reset

	mu      sync.Mutex // protects queue
	queue   []chunk
	arrived chan struct{} // holds a token if the queue may have grown

	writing sync.Mutex // held by the writer while it looks at the network and acts on it
}

// A chunk is some bytes; no bytes are the end of the stream.
type chunk struct {
	at   time.Time // of arrival
	data []byte
}

func newPipe(n *network, direction int, done <-chan struct{}) *pipe {
	return &pipe{network: n, direction: direction, done: done, arrived: make(chan struct{}, 1)}
}

// read reads src until it ends or is closed.
func (p *pipe) read(src io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			p.push(chunk{at: time.Now(), data: append([]byte(nil), buf[:n]...)})
		}
		if err != nil {
			p.push(chunk{at: time.Now()})
			return
		}
	}
}

func (p *pipe) push(c chunk) {
	p.mu.Lock()
	p.queue = append(p.queue, c)
	p.mu.Unlock()
	select {
	case p.arrived <- struct{}{}:
	default:
	}
}

// pop returns the next chunk, and waits for one if need be. It returns false if the connection was reset.
func (p *pipe) pop() (chunk, bool) {
	for {
		p.mu.Lock()
		if len(p.queue) > 0 {
			c := p.queue[0]
			p.queue = p.queue[1:]
			p.mu.Unlock()
			return c, true
		}
		p.mu.Unlock()
		select {
		case <-p.arrived:
		case <-p.done:
			return chunk{}, false
		}
	}
}

// write writes the chunks to dst, each when the network allows it, until the stream ends or fails.
func (p *pipe) write(dst duplex) {
	for {
		c, ok := p.pop()
		if !ok {
			return
		}
		for {
			passed, wait, changed, err := p.pass(c, dst)
			if err != nil || passed && len(c.data) == 0 {
				return
			}
			if passed {
				break
			}
			select {
			case <-changed:
			case <-wait:
			case <-p.done:
				return
			}
		}
	}
}

// pass writes c to dst if the network allows it now. Otherwise the caller should try again when wait fires, which may
// be nil, or when changed is closed.
func (p *pipe) pass(c chunk, dst duplex) (passed bool, wait <-chan time.Time, changed <-chan struct{}, err error) {
	p.writing.Lock()
	defer p.writing.Unlock()
	faults, changed := p.network.get()
	if faults.held[p.direction] {
		return false, nil, changed, nil
	}
	if d := time.Until(c.at.Add(faults.delay)); d > 0 {
		return false, time.After(d), changed, nil
	}
	if len(c.data) == 0 {
		return true, nil, nil, dst.CloseWrite()
	}
	_, err = dst.Write(c.data)
	return true, nil, nil, err
}

// settle waits for a write that may have begun before the network changed.
func (p *pipe) settle() {
	p.writing.Lock()
	defer p.writing.Unlock()
}

// waitOpen waits until the network lets this direction pass, or the connection is reset.
func (p *pipe) waitOpen() {
	for {
		faults, changed := p.network.get()
		if !faults.held[p.direction] {
			return
		}
		select {
		case <-changed:
		case <-p.done:
			return
		}
	}
}
