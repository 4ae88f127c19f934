package main

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// records answers for a domain as DNS does.
func records(known map[string][]*net.SRV) lookupSRV {
	return func(_ context.Context, service, proto, domain string) (string, []*net.SRV, error) {
		name := "_" + service + "._" + proto + "." + domain
		if all := known[name]; all != nil {
			return name + ".", all, nil
		}
		return "", nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
}

func TestEndpointsAreThoseOfTheSRVRecords(t *testing.T) {
	plain, secure := []*net.SRV{{Target: "etcd-0.example.com.", Port: 2379}}, []*net.SRV{{Target: "fd00::1", Port: 2381}}
	dns := records(map[string][]*net.SRV{
		"_etcd-client._tcp.example.com":          plain,
		"_etcd-client-ssl._tcp.example.com":      secure,
		"_etcd-client-green._tcp.example.com":    plain,
		"_etcd-client-ssl._tcp.tls.example.com":  plain,
		"_etcd-client-ssl-a._tcp.my.example.com": secure,
	})
	for name, c := range map[string]struct {
		domain, suffix string
		insecure       bool
		want           string // what is missing in the error begins with "!"
		serverName     string
	}{
		"none":               {"", "", true, "given:1", ""},
		"both":               {"example.com", "", true, "https://[fd00::1]:2381 http://etcd-0.example.com:2379", ""},
		"with TLS only":      {"example.com", "", false, "https://[fd00::1]:2381", "example.com"},
		"TLS is all":         {"tls.example.com", "", true, "https://etcd-0.example.com:2379", ""},
		"a suffix":           {"example.com", "green", true, "http://etcd-0.example.com:2379", ""},
		"a suffix, with TLS": {"my.example.com", "a", false, "https://[fd00::1]:2381", "my.example.com"},
		"only without TLS":   {"example.com", "green", false, "!_etcd-client-ssl-green._tcp.example.com", ""},
		"no records":         {"nowhere.example.com", "", true, "!_etcd-client._tcp.nowhere.example.com", ""},
	} {
		t.Run(name, func(t *testing.T) {
			conn := connection{
				endpoints: []string{"given:1"}, commandTimeout: time.Minute, encryption: encryption{insecureTransport: true},
				discoverySRV: c.domain, discoveryName: c.suffix, insecureDiscovery: c.insecure,
			}
			err := conn.discover(t.Context(), dns)
			if missing, fails := strings.CutPrefix(c.want, "!"); fails {
				if err == nil || exitCode(err) != exitUnavailable || !strings.Contains(err.Error(), missing) {
					t.Errorf("%v", err)
				}
				return
			}
			cfg, err2 := conn.config()
			if err := errors.Join(err, err2); err != nil || !slices.Equal(cfg.Endpoints, strings.Fields(c.want)) {
				t.Errorf("%v, %v, want %s", cfg.Endpoints, err, c.want)
			}
			if cfg.TLS == nil && c.serverName != "" || cfg.TLS != nil && cfg.TLS.ServerName != c.serverName {
				t.Errorf("certificates are verified by %+v, want %q", cfg.TLS, c.serverName)
			}
		})
	}
}
