//go:build !race

package queuemodel

const race = false
