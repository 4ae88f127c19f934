//go:build linux

package main

import (
	"io"
	"net"
	"testing"
)

// Each connection goes to the next address, and ends with either side.
func TestBalancerGivesEachConnectionTheNextAddress(t *testing.T) {
	var behind []string
	for _, greeting := range []string{"first", "second"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		behind = append(behind, l.Addr().String())
		go func() { // ends with the listener
			for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
				_, _ = io.WriteString(conn, greeting)
				_ = conn.Close()
			}
		}()
	}
	b, err := balance(func() []string { return behind })
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"first", "second", "first"} {
		conn, err := net.Dial("tcp", b.address())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); err != nil || string(got) != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
		_ = conn.Close()
	}
	if err := b.close(); err != nil {
		t.Error(err)
	}
}
