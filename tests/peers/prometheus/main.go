// Prometheus' own parser, rule files, engine and templates, over scrapes that a test has made.
//
// Its package rules, and promtool, need 700 packages (four minutes of a processor to build): here is of them what an alert's
// `for` means, and what a scrape leaves of a series that is gone. Reads from standard input, a value of JSON each, a `task`
// and the scrapes in their order; writes a `result`.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/url"
	"os"
	"sort"
	"time"

	"github.com/prometheus/common/model"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// A rule file, and queries of a board, which are asked at the end.
type task struct {
	Rules   string   `json:"rules"`
	Queries []string `json:"queries"`
}

// All servers at one time, by their instance; null: not reached.
type scrape struct {
	AtMs  int64              `json:"at_ms"`
	Texts map[string]*string `json:"texts"`
}

type alert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	FiredMs     int64             `json:"fired_ms"`
	activeMs    int64
}

type answer struct {
	Query  string `json:"query"`
	Series int    `json:"series"`
}

type result struct {
	Alerts  []*alert `json:"alerts"`
	Answers []answer `json:"answers"`
}

func main() {
	in := json.NewDecoder(os.Stdin)
	var asked task
	exitOn(in.Decode(&asked))
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 50_000_000, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true})
	groups, errs := rulefmt.Parse([]byte(asked.Rules), false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	exitOn(errors.Join(errs...))
	world := &world{byName: map[string][]*series{}, known: map[string]*series{}, engine: engine}
	said := result{}
	active := map[string]map[uint64]*alert{}
	for {
		var next scrape
		if err := in.Decode(&next); err == io.EOF {
			break
		} else {
			exitOn(err)
		}
		world.take(next)
		for _, group := range groups.Groups {
			for _, rule := range group.Rules {
				fired, err := world.alerts(rule, active, next.AtMs)
				exitOn(err)
				said.Alerts = append(said.Alerts, fired...)
			}
		}
	}
	for _, query := range asked.Queries {
		found, err := world.query(context.Background(), query, time.UnixMilli(world.nowMs))
		exitOn(err)
		said.Answers = append(said.Answers, answer{query, len(found)})
	}
	exitOn(json.NewEncoder(os.Stdout).Encode(said))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type sample struct {
	t int64
	f float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.f }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

type series struct {
	labels  labels.Labels
	samples []chunks.Sample
}

func (s *series) last() sample { return s.samples[len(s.samples)-1].(sample) }

// What has been scraped so far.
type world struct {
	byName map[string][]*series
	known  map[string]*series
	engine *promql.Engine
	nowMs  int64
}

func (w *world) add(of labels.Labels, atMs int64, f float64) {
	key := of.String()
	found := w.known[key]
	if found == nil {
		found = &series{labels: of}
		w.known[key] = found
		name := of.Get(labels.MetricName)
		w.byName[name] = append(w.byName[name], found)
	}
	found.samples = append(found.samples, sample{atMs, f})
}

func (w *world) take(next scrape) {
	w.nowMs = next.AtMs
	for instance, text := range next.Texts {
		target := labels.NewBuilder(labels.EmptyLabels()).Set("job", "rocketmq").Set("instance", instance)
		up := target.Set(labels.MetricName, "up").Labels()
		if text == nil {
			w.add(up, next.AtMs, 0)
			continue
		}
		w.add(up, next.AtMs, 1)
		read, err := textparse.New([]byte(*text), "text/plain", nil, textparse.ParserOptions{})
		exitOn(err)
		for {
			entry, err := read.Next()
			if err == io.EOF {
				break
			}
			exitOn(err)
			if entry != textparse.EntrySeries {
				continue
			}
			_, _, f := read.Series()
			var own labels.Labels
			read.Labels(&own)
			w.add(labels.NewBuilder(own).Set("job", "rocketmq").Set("instance", instance).Labels(), next.AtMs, f)
		}
	}
	for _, each := range w.known {
		if last := each.last(); last.t != next.AtMs && !value.IsStaleNaN(last.f) {
			each.samples = append(each.samples, sample{next.AtMs, math.Float64frombits(value.StaleNaN)})
		}
	}
}

// The alerts of a rule that begin to fire now.
func (w *world) alerts(rule rulefmt.Rule, all map[string]map[uint64]*alert, nowMs int64) ([]*alert, error) {
	found, err := w.query(context.Background(), rule.Expr, time.UnixMilli(nowMs))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", rule.Alert, err)
	}
	before, now := all[rule.Alert], map[uint64]*alert{}
	fired := []*alert{}
	for _, each := range found {
		named := labels.NewBuilder(each.Metric).Del(labels.MetricName).Set(labels.AlertName, rule.Alert)
		hash := named.Labels().Hash()
		if now[hash] != nil {
			return nil, fmt.Errorf("%s: two alerts of the same labels %s", rule.Alert, named.Labels())
		}
		now[hash] = before[hash]
		if now[hash] == nil {
			now[hash] = &alert{activeMs: nowMs}
		}
		if state := now[hash]; state.FiredMs == 0 && nowMs-state.activeMs >= time.Duration(rule.For).Milliseconds() {
			state.FiredMs = nowMs
			state.Labels = named.Labels().Map()
			state.Annotations = map[string]string{}
			for name, text := range rule.Annotations {
				if state.Annotations[name], err = w.expanded(text, each, nowMs); err != nil {
					return nil, err
				}
			}
			fired = append(fired, state)
		}
	}
	all[rule.Alert] = now
	return fired, nil
}

func (w *world) expanded(text string, of promql.Sample, nowMs int64) (string, error) {
	data := template.AlertTemplateData(of.Metric.Map(), nil, "", of)
	whole := "{{$labels := .Labels}}{{$value := .Value}}" + text
	return template.NewTemplateExpander(context.Background(), whole, "alert", data, model.Time(nowMs), w.query, &url.URL{}, nil).Expand()
}

func (w *world) query(ctx context.Context, text string, at time.Time) (promql.Vector, error) {
	asked, err := w.engine.NewInstantQuery(ctx, w, nil, text, at)
	if err != nil {
		return nil, err
	}
	defer asked.Close()
	said := asked.Exec(ctx)
	if said.Err != nil {
		return nil, said.Err
	}
	found, err := said.Vector()
	return append(promql.Vector{}, found...), err
}

// storage.Queryable and its Querier.

func (w *world) Querier(_, _ int64) (storage.Querier, error) { return w, nil }
func (w *world) Close() error                                { return nil }

func (w *world) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	among := []*series{}
	for _, each := range matchers {
		if each.Name == labels.MetricName && each.Type == labels.MatchEqual {
			among = w.byName[each.Value]
		}
	}
	fit := &set{at: -1}
	for _, each := range among {
		fits := true
		for _, matcher := range matchers {
			fits = fits && matcher.Matches(each.labels.Get(matcher.Name))
		}
		if fits {
			fit.all = append(fit.all, each)
		}
	}
	sort.Slice(fit.all, func(i, j int) bool { return labels.Compare(fit.all[i].labels, fit.all[j].labels) < 0 })
	return fit
}

func (w *world) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.ErrUnsupported
}

func (w *world) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.ErrUnsupported
}

type set struct {
	all []*series
	at  int
}

func (s *set) Next() bool { s.at++; return s.at < len(s.all) }
func (s *set) At() storage.Series {
	return storage.NewListSeries(s.all[s.at].labels, s.all[s.at].samples)
}
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }
