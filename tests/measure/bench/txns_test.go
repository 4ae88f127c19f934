package main

import (
	"errors"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestRecordedTxnsAreSentAgainUntilEtcdRefusesThem(t *testing.T) {
	etcds := make(stores)
	defer func() {
		if err := etcds.close(); err != nil {
			t.Error(err)
		}
	}()
	all := subjects()
	for name, compares := range map[string]bool{"uncontended/txns": true, "trylock/read": false, "onesession/txn": true} {
		t.Run(name, func(t *testing.T) {
			sub := all[slices.IndexFunc(all, func(s subject) bool { return s.name == name })]
			e, call, err := etcds.setUp(sub, 1, side{"floor", sub.floor})
			if err != nil {
				t.Fatal(err)
			}
			defer e.close()
			for range 5 {
				if err := call(&stopwatch{}); err != nil {
					t.Fatal(err)
				}
			}
			if !compares {
				return
			}
			// The session key is among these.
			if _, err := e.clients[0].Delete(t.Context(), "holdfast/", clientv3.WithPrefix()); err != nil {
				t.Fatal(err)
			}
			if err := call(&stopwatch{}); !errors.Is(err, errRefused) {
				t.Errorf("Txns of a session whose key is gone: %v", err)
			}
		})
	}
}
