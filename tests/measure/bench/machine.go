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
- %d rounds, of a free lock %d; in each the sides take turns, all rounds of a side take %v. Times and ratios are medians
  over the rounds (the interval in which they lie with 95 %% confidence; of 5 rounds the smallest and the largest)
`,
		"`"+strings.ReplaceAll(command, "`", "'")+"`", at.UTC().Format("2006-01-02 15:04 MST"),
		runtime.NumCPU(), cpu(), runtime.GOOS, runtime.GOARCH, kernel(), runtime.Version(), version.Version,
		p.rounds, max(p.rounds, manyRounds), p.time)
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
