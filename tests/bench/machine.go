package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/version"
)

// environment describes the command, machine, versions and plan of the measurement, in Markdown.
func environment(command string, p plan, at time.Time) string {
	return fmt.Sprintf(`- command: %s
- date: %s
- machine: %d × %s, %s/%s, kernel %s
- %s, etcd %s, fsync on
- %d rounds; in each the sides take turns, %v a side. Times and ratios are medians over the rounds (smallest–largest).
`,
		"`"+strings.ReplaceAll(command, "`", "'")+"`", at.UTC().Format("2006-01-02 15:04 MST"),
		runtime.NumCPU(), cpu(), runtime.GOOS, runtime.GOARCH, kernel(), runtime.Version(), version.Version,
		p.rounds, p.time/time.Duration(p.rounds))
}

func cpu() string {
	info, _ := os.ReadFile("/proc/cpuinfo") // Linux only
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "CPU"
}

func kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(release))
}
