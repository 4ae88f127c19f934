package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// lookupSRV is net.DefaultResolver.LookupSRV, but in tests.
type lookupSRV func(ctx context.Context, service, proto, domain string) (name string, all []*net.SRV, err error)

// discover sets the endpoints to those that the SRV records of --discovery-srv name: of _etcd-client-ssl._tcp, which
// speak TLS, and of _etcd-client._tcp.
func (c *connection) discover(ctx context.Context, lookup lookupSRV) error {
	if c.discoverySRV == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.commandTimeout)
	defer cancel()
	services := []struct{ name, scheme string }{{"etcd-client-ssl", "https"}, {"etcd-client", "http"}}
	if !c.insecureDiscovery {
		services = services[:1]
	}
	var endpoints []string
	var failed []error
	for _, s := range services {
		if c.discoveryName != "" {
			s.name += "-" + c.discoveryName
		}
		_, all, err := lookup(ctx, s.name, "tcp", c.discoverySRV)
		failed = append(failed, err)
		for _, srv := range all {
			host := net.JoinHostPort(strings.TrimSuffix(srv.Target, "."), strconv.Itoa(int(srv.Port)))
			endpoints = append(endpoints, s.scheme+"://"+host)
		}
	}
	if len(endpoints) == 0 {
		err := errors.Join(failed...)
		if err == nil {
			err = errors.New("there is no record")
		}
		return &exitError{exitUnavailable, fmt.Errorf("--discovery-srv %s: %w", c.discoverySRV, err)}
	}
	c.endpoints = endpoints
	return nil
}
