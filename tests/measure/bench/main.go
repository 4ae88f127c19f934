package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"regexp"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// command runs the program with the given arguments and output.
func command(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(out)
	var p plan
	only := flags.String("run", "", "measure only the subjects that match `regexp`, such as "+
		"members=1/handover/sessions=2;\nthen no file is written unless its flag is given")
	markdown := flags.String("markdown", "tests/measure/bench/README.md", "update the figures in `file`; empty: none")
	svg := flags.String("svg", "tests/measure/bench/figures.svg", "write the chart to `file`; empty: none")
	flags.DurationVar(&p.time, "time", 2*time.Second, "measuring time for each side of each subject, over all rounds")
	rest := idlePlan{processes: 30, settle: 10 * time.Second}
	flags.DurationVar(&rest.window, "idle", time.Minute, "time in which the requests of idle processes are counted")
	flags.IntVar(&p.rounds, "rounds", 5, "number of rounds; in each, every side is measured once")
	crowds := flags.Bool("load", false, "measure nothing but crowds of callers, at rest and beside busy loops;\n"+
		"no file is written")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *crowds {
		return measureLoads(ctx, loads(), 2*time.Minute, out)
	}
	given := make(map[string]bool)
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if given["run"] && !given["markdown"] {
		*markdown = ""
	}
	if given["run"] && !given["svg"] {
		*svg = ""
	}
	selected, err := regexp.Compile(*only)
	switch {
	case err != nil:
		return err
	case p.rounds < 1 || p.time <= 0:
		return errors.New("-rounds and -time must be positive")
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected arguments %q; select subjects with -run", flags.Args())
	}

	began := time.Now()
	results, err := measureAll(ctx, p, selected, out)
	if err != nil {
		return err
	}
	var measured string
	if len(results) > 0 {
		measured = table(results)
	}
	if selected.MatchString(idleName) {
		idle, err := rest.idle(ctx)
		if err != nil {
			return err
		}
		measured += "\n" + idle
	} else if len(results) == 0 {
		return fmt.Errorf("no subject matches -run %q", selected)
	}
	about := environment(strings.Join(append([]string{"go run ./tests/measure/bench"}, args...), " "), p, began)
	fmt.Fprintf(out, "\n%s\n%s", about, measured)
	if *markdown != "" {
		if err := rewrite(*markdown, "\n"+about+"\n"+chartLink(*svg)+measured+"\n"); err != nil {
			return err
		}
	}
	if *svg != "" {
		return os.WriteFile(*svg, []byte(chart(results)), 0o644)
	}
	return nil
}

// measureAll measures the selected subjects and prints each result as it goes.
func measureAll(ctx context.Context, p plan, selected *regexp.Regexp, out io.Writer) (results []result, err error) {
	etcds := make(stores)
	defer func() { err = errors.Join(err, etcds.close()) }()
	began := time.Now()
	for _, sub := range subjects() {
		for _, size := range sub.sizes() {
			name := title(size) + "/" + sub.name
			if !selected.MatchString(name) {
				continue
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			fmt.Fprintf(out, "%4.0f s  %-60s", time.Since(began).Seconds(), name)
			r, err := p.measure(etcds, sub, size)
			if err != nil {
				fmt.Fprintln(out)
				return nil, err
			}
			for _, sd := range sub.sides() {
				fmt.Fprintf(out, "  %s %s", sd.name, formatDurations(spreadOf(r.sides[sd.name].took)))
			}
			fmt.Fprintln(out)
			results = append(results, r)
		}
	}
	return results, nil
}

// chartLink returns the Markdown that embeds the chart in the document.
func chartLink(svg string) string {
	if svg == "" {
		return ""
	}
	return fmt.Sprintf("![How many times faster than upstream](%s)\n\n", path.Base(svg))
}
