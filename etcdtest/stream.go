package etcdtest

import (
	"context"
	"path"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// A stream is the client's side of a Watch or LeaseKeepAlive stream.
type stream struct {
	grpc.ClientStream
	rpcs   *rpcs
	method string
	ctx    context.Context // of the stream
	cancel context.CancelFunc

	mu     sync.Mutex      // protects queue, broken; held while sending, to keep messages in order
	queue  []proto.Message // held by a stall until flush; nil is CloseSend
	broken error           // the fault that broke the stream
}

// stream is a [grpc.StreamClientInterceptor].
func (r *rpcs) stream(
	ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, fullMethod string, open grpc.Streamer,
	opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	ctx, cancel := context.WithCancel(ctx)
	s, err := open(ctx, desc, cc, fullMethod, opts...)
	if err != nil {
		cancel()
		return nil, err
	}
	return &stream{ClientStream: s, rpcs: r, method: path.Base(fullMethod), ctx: ctx, cancel: cancel}, nil
}

// SendMsg never reports a lost message; RecvMsg does, as for a broken connection.
func (s *stream) SendMsg(m any) error {
	s.rpcs.counter.add(s.method)
	if s.rpcs.take(loseRequest, s.method, m) != nil {
		s.breakOff(errRequestLost)
		return nil
	}
	return s.send(m.(proto.Message))
}

func (s *stream) CloseSend() error { return s.send(nil) }

func (s *stream) send(m proto.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		if s.rpcs.gate(s.method) == nil {
			return s.sendNow(m)
		}
		s.rpcs.spawn(s.flush)
	}
	if m != nil {
		m = proto.Clone(m)
	}
	s.queue = append(s.queue, m)
	return nil
}

func (s *stream) sendNow(m proto.Message) error {
	if m == nil {
		return s.ClientStream.CloseSend()
	}
	return s.ClientStream.SendMsg(m)
}

// flush sends the held messages when the stall ends.
func (s *stream) flush() {
	for {
		if s.waitOpen() != nil {
			return
		}
		s.mu.Lock()
		if s.rpcs.gate(s.method) != nil { // stalled again
			s.mu.Unlock()
			continue
		}
		for _, m := range s.queue {
			if s.sendNow(m) != nil {
				break // RecvMsg returns the error
			}
		}
		s.queue = nil
		s.mu.Unlock()
		return
	}
}

// waitOpen waits until the method is not stalled. It returns an error if the stream ends first.
func (s *stream) waitOpen() error {
	for {
		healed := s.rpcs.gate(s.method)
		if healed == nil {
			return nil
		}
		select {
		case <-healed:
		case <-s.ctx.Done():
			return s.ctx.Err()
		case <-s.rpcs.life.Done():
			return errClosed
		}
	}
}

func (s *stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil {
		err = s.afterRecv(m)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		err = s.broken
	}
	if err != nil {
		s.cancel()
	}
	return err
}

// afterRecv applies the faults to a reply.
func (s *stream) afterRecv(m any) error {
	if err := s.waitOpen(); err != nil {
		return status.FromContextError(err).Err()
	}
	f := s.rpcs.take(loseReply, s.method, m)
	if f == nil {
		return nil
	}
	err := s.rpcs.replyLost(s.ctx, f.code)
	s.breakOff(err)
	return err
}

// breakOff breaks the stream with err.
func (s *stream) breakOff(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil {
		s.broken = err
	}
	s.cancel()
}
