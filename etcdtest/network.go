package etcdtest

import (
	"io"
	"sync"
	"time"
)

// The two directions of a connection.
const (
	requests = iota // away from the one who connected
	replies         // towards the one who connected
)

// A network is the state of the wire between the two sides of some proxies. The zero value has no faults.
type network struct {
	mu      sync.Mutex // protects what follows
	faults  networkFaults
	changed chan struct{} // closed at the next change; nil while nobody has asked for it
}

type networkFaults struct {
	cut   bool          // connections are reset
	held  [2]bool       // by direction: bytes stay where they are
	delay time.Duration // in each direction
}

// get returns the faults there are now, and a channel that is closed when they change.
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

// A pipe is one direction of a connection through a network. A reader takes in all there is, at any time; a writer lets
// it out in the same order when the network allows. What a pipe may hold is not limited: the flow control of HTTP/2
// does that, and a limit here would turn latency into a lack of throughput.
type pipe struct {
	network   *network
	direction int
	done      <-chan struct{} // closed when the connection is reset

	mu      sync.Mutex // protects queue
	queue   []chunk
	arrived chan struct{} // holds one signal if the queue may have grown

	writing sync.Mutex // held by the writer from looking at the network's state to having acted on it
}

// A chunk is some bytes, or with no bytes the end of the stream.
type chunk struct {
	at   time.Time // when they came in
	data []byte
}

func newPipe(n *network, direction int, done <-chan struct{}) *pipe {
	return &pipe{network: n, direction: direction, done: done, arrived: make(chan struct{}, 1)}
}

// read takes in what comes from src until it ends or is closed.
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

// pop returns the first chunk there is or comes; false: the connection was reset.
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

// write lets what came in out to dst, each chunk when its time has come, until the stream has ended or cannot go on.
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

// pass writes c to dst if the network allows it now. Else it returns when to look again: when wait fires (nil: not by
// waiting alone) or changed is closed.
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

// settle returns when the writer has finished a write that it may have begun under an earlier state of the network.
func (p *pipe) settle() {
	p.writing.Lock()
	defer p.writing.Unlock()
}

// waitOpen returns when the network lets this direction through, or the connection is reset.
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
