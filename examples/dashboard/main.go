// Dashboard makes trouble, so that the dashboard and the alerts in deploy can be seen live. Three workers want the same
// locks, lead in turn and share shards; one after the other is cut off, kicked, stuck, and more. Their metrics are for
// Prometheus.
//
//	go run ./examples/dashboard
//	prometheus --config.file examples/dashboard/prometheus.yml --storage.tsdb.path "$(mktemp -d)" \
//		--web.listen-address 127.0.0.1:9090
//
// Then see the alerts at http://127.0.0.1:9090/alerts (of Debian's Prometheus: /classic/alerts). In Grafana add
// http://127.0.0.1:9090 as a data source, and import deploy/grafana.json. A round of all troubles takes about five
// minutes; panels have data after a few seconds, some alerts only after ten minutes. The program says what it does, and
// when:
//
//	   time  who       what                                                                   token
//	  0.12s  worker-1  has its metrics at http://127.0.0.1:9464/metrics/worker-1
//	  0.13s  worker-2  has its metrics at http://127.0.0.1:9464/metrics/worker-2
//	  0.13s  worker-3  has its metrics at http://127.0.0.1:9464/metrics/worker-3
//	  0.13s  worker-1  is cut off from etcd until its session is suspended
//	  6.89s  worker-1  is well again
//	 21.89s  worker-2  is cut off from etcd until its lease is lost, and for longer
//	109.17s  worker-2  is well again
//	124.18s  worker-3  holds a lock for long, while others wait
//	139.19s  worker-3  is well again
//	154.19s  worker-1  holds a lock, and an administrator kicks it
//	154.67s  worker-1  is well again
//	169.67s  worker-2  holds a lock, and its entry is deleted by hand
//	170.23s  worker-2  is well again
//	185.23s  worker-3  holds a lock, and its lease is revoked
//	185.24s  worker-3  is well again
//	200.24s  worker-1  holds a lock for longer than MaxHold
//	215.34s  worker-1  is well again
//	230.34s  worker-2  acquires a lock, and gets no reply from etcd
//	230.37s  worker-2  is well again
//	245.39s  worker-3  holds a lock, and its role loses its permissions
//	261.60s  worker-3  is well again
//	276.60s  all       had each trouble
//
// In a round each panel has something to show, and some of the alerts fire; the others need what lasts longer.
// docs/dashboards.md says what each of them means.
package main

import (
	"context"
	"errors"
	"flag"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/session"
)

var (
	listen = flag.String("listen", "127.0.0.1:9464", "`address` of the metrics")
	ttl    = flag.Duration("ttl", session.DefaultTTL, "of the workers' leases")
	lasts  = flag.Duration("lasts", 15*time.Second, "how long a trouble lasts, and the pause after it")
	rounds = flag.Int("rounds", 0, "how often to make each trouble; 0: until Ctrl-C")
)

func main() { demo.Main(run) }

func run(ctx context.Context, d *demo.Demo) (err error) {
	metrics := http.NewServeMux()
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: metrics, ReadHeaderTimeout: 5 * time.Second}
	go srv.Serve(l) // ends with Close
	defer srv.Close()

	working, stop := context.WithCancel(ctx)
	var workers []*worker
	defer func() {
		stop()
		for _, w := range workers {
			err = errors.Join(err, w.close(ctx))
		}
	}()
	d.Header()
	for _, name := range []string{"worker-1", "worker-2", "worker-3"} {
		w, err := newWorker(working, d.Endpoints, name, *ttl)
		if err != nil {
			return err
		}
		workers = append(workers, w)
		metrics.Handle("/metrics/"+name, promhttp.HandlerFor(w.registry, promhttp.HandlerOpts{}))
		d.Row(name, 0, demo.Plain, "has its metrics at http://%s/metrics/%s", l.Addr(), name)
	}
	for n := 0; n < *rounds || *rounds == 0; n++ {
		for i, trouble := range troubles {
			w := workers[(n+i)%len(workers)]
			d.Row(w.name, 0, demo.Bad, "%s", trouble.what)
			if err := trouble.to(ctx, d, w, *lasts); err != nil {
				return ended(ctx, err)
			}
			d.Row(w.name, 0, demo.Good, "is well again")
			if err := pause(ctx, *lasts); err != nil {
				return ended(ctx, err)
			}
		}
	}
	d.Row("all", 0, demo.Plain, "had each trouble")
	<-ctx.Done() // the metrics can still be read
	return nil
}

// ended returns nil if the program was asked to end.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
