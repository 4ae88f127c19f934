package fencingtest

import (
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Limits are transactions at etcd's limit of operations and one above it: tests compare what an etcdfence.Writer says
// with what etcd says.
var Limits = []struct {
	Name      string
	Cmps      []clientv3.Cmp
	Then, Els []clientv3.Op
	OK        bool
}{
	{"all lists full", Compares(127), Puts(127), Puts(127), true},
	{"comparisons", Compares(128), nil, nil, false},
	{"then", nil, Puts(128), nil, false},
	{"else", nil, nil, Puts(128), false},
	{"nested", nil, []clientv3.Op{clientv3.OpTxn(nil, Puts(126), nil)}, nil, true},
	{"nested, too many", nil, []clientv3.Op{clientv3.OpTxn(nil, Puts(127), nil)}, nil, false},
	{"nested in else", Compares(27), nil, []clientv3.Op{clientv3.OpTxn(nil, nil, Puts(100))}, true},
	{"nested in else, too many", Compares(28), nil, []clientv3.Op{clientv3.OpTxn(nil, nil, Puts(100))}, false},
	{"nested twice", nil, nestedTwice(26), nil, true},
	{"nested twice, too many", nil, nestedTwice(27), nil, false},
}

func nestedTwice(cmps int) []clientv3.Op {
	inner := clientv3.OpTxn(nil, Puts(100), nil)
	return []clientv3.Op{clientv3.OpTxn(Compares(cmps), []clientv3.Op{inner}, nil)}
}

// Puts returns n operations.
func Puts(n int) (ops []clientv3.Op) {
	for i := range n {
		ops = append(ops, clientv3.OpPut(fmt.Sprint("k/", i), "v"))
	}
	return ops
}

// Compares returns n comparisons that are true.
func Compares(n int) (cmps []clientv3.Cmp) {
	for i := range n {
		cmps = append(cmps, clientv3.Compare(clientv3.CreateRevision(fmt.Sprint("absent/", i)), "=", 0))
	}
	return cmps
}
