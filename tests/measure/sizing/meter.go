//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// meter prints a row for each stage: what etcd has, and what happens in it in a second.
type meter struct {
	metrics string // the address of etcd's metrics
	out     io.Writer
	plan    plan
	fleet   *fleet

	base client // before the fleet
	rows int
}

// sample has etcd's metrics, summed over their labels, and the gRPC requests that it has begun to serve, by method.
type sample map[string]float64

// client is what this process uses.
type client struct {
	goroutines int
	memory     uint64 // of heap and stacks
	cpu        time.Duration
}

func (m *meter) begin(ctx context.Context) (err error) {
	m.base = m.client()
	_, err = m.scrape(ctx)
	return err
}

// row waits until etcd has so many watches, measures, and prints.
func (m *meter) row(ctx context.Context, watches int, stage string) error {
	if err := m.await(ctx, watches); err != nil {
		return err
	}
	if err := pause(ctx, m.plan.settle); err != nil {
		return err
	}
	before, err := m.scrape(ctx)
	if err != nil {
		return err
	}
	cpu, start := m.client().cpu, time.Now()
	if err := pause(ctx, m.plan.window); err != nil {
		return err
	}
	after, err := m.scrape(ctx)
	if err != nil {
		return err
	}
	seconds, now := time.Since(start).Seconds(), m.client()
	rate := func(name string) float64 { return (after[name] - before[name]) / seconds }
	per := func(total float64) float64 { return total / float64(m.plan.processes) }
	if m.rows++; m.rows == 1 {
		fmt.Fprint(m.out, "| each process | leases | keys | watches | renewals/s | reads/s | writes/s "+
			"| etcd: CPU | memory | store | open files | each client: CPU | memory | goroutines |\n",
			"|", strings.Repeat(" --- |", 14), "\n")
	}
	_, err = fmt.Fprintf(m.out, "| %s | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f "+
		"| %.1f %% | %.0f MB | %.1f MB | %.0f | %.2f %% | %.0f KB | %.1f |\n", stage,
		after["etcd_debugging_lease_granted_total"]-after["etcd_debugging_lease_revoked_total"],
		after["etcd_debugging_mvcc_keys_total"], after["etcd_debugging_mvcc_watcher_total"],
		rate("etcd_debugging_lease_renewed_total"), rate("Range")+rate("ReadonlyTxn"),
		rate("etcd_server_proposals_applied_total"),
		100*rate("process_cpu_seconds_total"), after["process_resident_memory_bytes"]/1e6,
		after["etcd_mvcc_db_total_size_in_bytes"]/1e6, after["process_open_fds"],
		per(100*(now.cpu-cpu).Seconds()/seconds), per(float64(now.memory-m.base.memory)/1e3),
		per(float64(now.goroutines-m.base.goroutines)))
	return errors.Join(err, m.tooBusy())
}

// tooBusy is an error if the figures are those of sessions that were lost and began anew.
func (m *meter) tooBusy() error {
	if why := m.fleet.why.Load(); why != nil {
		return fmt.Errorf("%d sessions were lost: this machine is too small, or too busy, for that many; the first one: %w",
			m.fleet.lost.Load(), *why)
	}
	return nil
}

// await waits until etcd has so many watches: a session and a waiter set theirs in the background. On a busy machine
// there may be more for a moment: one that was given up before etcd had created it is canceled after that.
func (m *meter) await(ctx context.Context, watches int) error {
	for {
		if err := m.tooBusy(); err != nil {
			return err
		}
		switch now, err := m.scrape(ctx); {
		case err != nil:
			return err
		case int(now["etcd_debugging_mvcc_watcher_total"]) >= watches:
			return nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// client measures this process.
func (m *meter) client() client {
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	var use syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &use) // fails for a bad argument only
	return client{runtime.NumGoroutine(), mem.HeapAlloc + mem.StackInuse,
		time.Duration(use.Utime.Nano() + use.Stime.Nano())}
}

// scrape reads etcd's metrics.
func (m *meter) scrape(ctx context.Context) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.metrics, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	all := make(sample)
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, number, _ := strings.Cut(lines.Text(), "} ")
		if number == "" {
			name, number, _ = strings.Cut(name, " ")
		}
		value, err := strconv.ParseFloat(number, 64)
		if strings.HasPrefix(name, "#") || err != nil {
			continue
		}
		metric, labels, _ := strings.Cut(name, "{")
		all[metric] += value
		switch metric {
		case "grpc_server_started_total":
			all[label(labels, "grpc_method")] += value
		case "etcd_server_request_duration_seconds_count":
			if kind := label(labels, "type"); kind == "ReadonlyTxn" {
				all[kind] += value
			}
		}
	}
	return all, lines.Err()
}

// label returns the value of a label in Prometheus's text format.
func label(labels, name string) string {
	_, rest, _ := strings.Cut(labels, name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}
