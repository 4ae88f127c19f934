//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "campaign: it stops processes and members, for which it needs Linux")
	os.Exit(1)
}
