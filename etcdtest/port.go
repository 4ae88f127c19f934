//go:build unix

package etcdtest

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A port is a TCP port on 127.0.0.1 that is reserved until Close.
//
// etcd needs its own and its peers' addresses before any member listens, and a member keeps its address while it is
// stopped. To listen on port 0, close, and use the number is a race between tests that run in parallel. So a socket
// that is bound with SO_REUSEPORT and never listens reserves the port. The kernel does not choose it as a free port and
// refuses connections to it. Only sockets of the same user that also set SO_REUSEPORT can bind to it, as the member's
// listener does.
type port struct {
	fd   int
	addr string // 127.0.0.1:n
}

func reservePort() (*port, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	p := &port{fd: fd}
	unix.CloseOnExec(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		p.Close()
		return nil, os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		p.Close()
		return nil, os.NewSyscallError("bind", err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		p.Close()
		return nil, os.NewSyscallError("getsockname", err)
	}
	p.addr = fmt.Sprintf("127.0.0.1:%d", sa.(*unix.SockaddrInet4).Port)
	return p, nil
}

// Close releases the port. It may be called again.
func (p *port) Close() error {
	fd := p.fd
	p.fd = -1
	if fd < 0 {
		return nil
	}
	return os.NewSyscallError("close", unix.Close(fd))
}
