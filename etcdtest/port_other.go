//go:build !unix

package etcdtest

import "errors"

type port struct{ addr string }

func reservePort() (*port, error) { return nil, errors.New("etcdtest works on Unix only") }

func (p *port) Close() error { return nil }
