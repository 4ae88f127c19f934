//go:build race

package queuemodel

const race = true
