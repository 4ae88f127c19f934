//go:build !linux

package fencing_test

func beChild() {}
