package jobs

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/jobs/internal/database"
)

// panics is an output and an error that panics when it is written.
type panics struct{}

func (panics) MarshalJSON() ([]byte, error) { panic("of the output") }
func (panics) Error() string                { return "" }
func (panics) Unwrap() error                { panic("of the error") }

type declined struct{ Code string }

func (*declined) Error() string { return "declined" }

type stated struct{ state string }

func (s stated) Error() string    { return "s" }
func (s stated) SQLState() string { return s.state }

// attemptOf is an attempt that nobody sends anything of.
func attemptOf() *attempt {
	a := newAttempt(context.Background(), &JobRow{ID: 7})
	a.token = 8
	return a
}

// read is a result as an object; nil is none.
func read(result string) (members object) {
	_ = json.Unmarshal([]byte(result), &members)
	return members
}

// ended is the result of an attempt whose handler has ended so.
func (a *attempt) endsAs(output any, err error) object {
	result, _ := a.outcome(output, err)
	return read(result)
}

func TestTypeOfAnError(t *testing.T) {
	for want, err := range map[string]error{
		"jobs.declined":      &declined{},
		"errors.errorString": errors.New("x"),
		"panic":              named{name: "panic", text: "42"},
	} {
		for _, wrapped := range []error{err, fmt.Errorf("a: %w", err), Discard(err), fmt.Errorf("a: %w", RetryIn(0, err)), database.Explain(err, "h")} {
			if got := ErrorType(wrapped); got != want {
				t.Errorf("%v is of type %s, not %s", wrapped, got, want)
			}
		}
	}
}

func TestSQLStateOfAnyDriver(t *testing.T) {
	for _, one := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{errors.New("x"), ""},
		{stated{"40001"}, "40001"},
		{fmt.Errorf("a: %w", stated{"40001"}), "40001"},
		{&declined{"23505"}, ""},
	} {
		if got := sqlState(one.err); got != one.want {
			t.Errorf("%#v has SQLSTATE %q, not %q", one.err, got, one.want)
		}
	}
	for _, one := range []struct {
		state                          string
		isBroken, isPassing, isOfValue bool
	}{
		{"", true, true, false}, {"08006", true, true, false}, {"57P01", true, true, false},
		{"57014", false, true, false}, {"25006", true, true, false}, {"40001", false, true, false},
		{"40P01", false, true, false}, {"55P03", false, true, false}, {"22023", false, false, true},
		{"54000", false, false, true}, {"XX000", false, false, false}, {"42501", false, false, false},
	} {
		err := stated{one.state}
		if is(err, broken) != one.isBroken || is(err, passing) != one.isPassing || isOfValue(err) != one.isOfValue {
			t.Errorf("%s is taken for another", one.state)
		}
	}
	for text, isIt := range map[string]bool{
		"pq: invalid memory alloc request size 1073741824":                     true,
		"ERROR: invalid memory alloc request size 1073741824 (SQLSTATE XX000)": true,
		"pq: tuple concurrently updated":                                       false,
	} {
		if err := fmt.Errorf("%s%w", text, stated{"XX000"}); isOfValue(err) != isIt {
			t.Errorf("%s is taken for another", text)
		}
	}
	if !is(driver.ErrBadConn, broken) || is(nil, broken) || is(nil, passing) || isOfValue(nil) {
		t.Error("what has no SQLSTATE is of the connection, and no error is none")
	}
}

func TestStorableTexts(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		"ü\x00b":                    "ü\uFFFDb",
		"a\xed\xa0\x80b":            "a\uFFFDb",
		strings.Repeat("🦀", 10_001): strings.Repeat("🦀", 10_000),
		strings.Repeat("a", 99_999): strings.Repeat("a", 10_000),
	} {
		if got := storable(text); got != want {
			t.Errorf("%.20q.. is stored as %.20q..", text, got)
		}
	}
}

func TestEndings(t *testing.T) {
	a := attemptOf()
	for _, one := range []struct {
		err  error
		want object
	}{
		{nil, object{"do": "complete", "output": "o"}},
		{Snooze(time.Minute), object{"do": "snooze", "delay": "60.000000 s"}},
		{Snooze(-time.Minute), object{"do": "snooze", "delay": "0.000000 s"}},
		{fmt.Errorf("a: %w", Snooze(time.Second)), object{"do": "snooze", "delay": "1.000000 s"}},
		{Cancel("c\x00"), object{"do": "cancel", "reason": "c\uFFFD"}},
		{fmt.Errorf("a: %w", Discard(errors.New("d"))), object{"do": "fail", "error": "a: d", "retryable": false,
			"details": map[string]any{"type": "errors.errorString"}}},
		{RetryIn(time.Second, stated{"40001"}), object{"do": "fail", "error": "s", "retry_in": "1.000000 s",
			"details": map[string]any{"type": "jobs.stated", "code": "40001"}}},
		{errors.New(""), object{"do": "fail", "error": "errors.errorString", "details": map[string]any{"type": "errors.errorString"}}},
	} {
		one.want["id"], one.want["token"] = 7.0, 8.0
		if got := a.endsAs("o", one.err); !reflect.DeepEqual(got, one.want) {
			t.Errorf("%v: %v, not %v", one.err, got, one.want)
		}
	}
	if got := a.endsAs(nil, nil); got["do"] != "complete" || len(got) != 3 {
		t.Errorf("null: %v", got)
	}
	for _, output := range []any{math.NaN(), panics{}} {
		if got := a.endsAs(output, nil); fmt.Sprint(got["details"]) != "map[type:invalid_output]" {
			t.Errorf("%v: %v", output, got)
		}
	}
	if got := a.endsAs(nil, Discard(nil)); got["retryable"] != false {
		t.Errorf("Discard(nil): %v", got)
	}
}

func TestAHandlerThatWasCancelled(t *testing.T) {
	for reason, want := range map[error]any{ErrTimeout: "fail", ErrCancelled: "release", ErrStopping: "release", ErrLost: nil} {
		a := attemptOf()
		if a.reason() != nil {
			t.Error("it is not cancelled yet")
		}
		a.cancel(reason)
		a.cancel(ErrLost)
		if got := context.Cause(a.ctx); got != reason || a.ctx.Err() == nil {
			t.Errorf("it was cancelled because of %v, not %v", got, reason)
		}
		got := a.endsAs(nil, a.ctx.Err())
		if want == nil && got != nil || want != nil && got["do"] != want {
			t.Errorf("%v: %v, not %v", reason, got, want)
		}
	}
}

func TestTheFailureOfAnAttempt(t *testing.T) {
	err, unwritable := errors.New("e"), func() {}
	for _, one := range []struct {
		reason      error
		isCompleted bool
		output      any
		err         error
		want        string // of the error; "" is none
	}{
		{nil, false, 1, nil, ""},
		{nil, false, nil, err, "e"},
		{nil, false, unwritable, nil, "json: unsupported type: func()"},
		{nil, false, panics{}, nil, "of the output"},
		{nil, false, nil, panics{}, "the handler's error panics when it is read"},
		{nil, false, nil, Snooze(0), ""},
		{nil, false, nil, Cancel("c"), ""},
		{nil, false, nil, Discard(err), "e"},
		{nil, true, unwritable, nil, ""},
		{nil, true, nil, err, "e"},
		{ErrTimeout, false, 1, nil, ErrTimeout.Error()},
		{ErrTimeout, false, unwritable, nil, ErrTimeout.Error()},
		{ErrTimeout, false, nil, err, ErrTimeout.Error()},
		{ErrTimeout, false, nil, Snooze(0), ErrTimeout.Error()},
		{ErrTimeout, true, 1, nil, ""},
		{ErrCancelled, false, 1, nil, ""},
		{ErrCancelled, false, unwritable, nil, "json: unsupported type: func()"},
		{ErrCancelled, false, nil, err, ""},
		{ErrCancelled, false, nil, Discard(err), "e"},
		{ErrStopping, false, nil, err, ""},
		{ErrStopping, false, nil, RetryIn(0, err), "e"},
		{ErrLost, false, unwritable, nil, ""},
		{ErrLost, false, nil, err, ""},
		{ErrLost, false, nil, Discard(err), ""},
	} {
		a := attemptOf()
		a.completed.Store(one.isCompleted)
		if one.reason != nil {
			a.cancel(one.reason)
		}
		got := ""
		if failure := AttemptFailure(a.row, one.output, one.err); failure != nil {
			got = failure.Error()
		}
		if got != one.want {
			t.Errorf("%v: %q", one, got)
		}
	}
}

func TestAJobWithoutAWorker(t *testing.T) {
	job := &Job[declined]{JobRow: &JobRow{}}
	ctx := context.Background()
	if job.Progress(ctx, 1) != nil || job.Complete(ctx, nil, 1) != nil || job.Context().Err() != nil {
		t.Error("a handler cannot be called by hand")
	}
	job.End(1, nil)
	if job.Progress(ctx, math.NaN()) == nil {
		t.Error("NaN is no progress")
	}
	if AttemptFailure(job.JobRow, 1, nil) != nil || AttemptFailure(job.JobRow, math.NaN(), nil) == nil {
		t.Error("NaN is no output")
	}
}

func TestUniqueOptions(t *testing.T) {
	for want, unique := range map[string]Unique{
		`{}`:                                 {},
		`{"by_args":true,"by_period":86400}`: {ByArgs: true, ByPeriod: 24 * time.Hour},
		`{"by_args":["a"],"wait":false,"on_conflict":{"update":{"*":["args"]}},"hold_for":0.5}`: {
			ByArgs: true, ByArgPaths: []string{"a"}, NoWait: true, HoldFor: time.Second / 2,
			OnConflict: OnConflictUpdate(map[State][]string{"*": {"args"}})},
	} {
		got, err := json.Marshal(unique)
		var gotValue, wantValue any
		_ = json.Unmarshal(got, &gotValue)
		_ = json.Unmarshal([]byte(want), &wantValue)
		if err != nil || !reflect.DeepEqual(gotValue, wantValue) {
			t.Errorf("%s, not %s (%v)", got, want, err)
		}
	}
}

func TestArraysAsArguments(t *testing.T) {
	if got := array([]string{`a b`, `c"\`, ``}); got != `{"a b","c\"\\",""}` {
		t.Error(got)
	}
	if got := array([]int64{1, -2}) + array([]int64(nil)); got != `{"1","-2"}{}` {
		t.Error(got)
	}
}

func TestQueuesShareThePlaces(t *testing.T) {
	w := NewWorker(sql.OpenDB(nil), Options{Queues: []string{"a", "b"}, Weights: map[string]float64{"a": 3}, Concurrency: 8})
	for _, one := range []struct {
		a, b   int
		queues string
		places int
	}{
		{0, 0, `{"a","b"}`, 6},
		{6, 0, `{"b","a"}`, 2},
		{6, 1, `{"b","a"}`, 1},
		{6, 2, ``, 0},
		{0, 7, `{"a","b"}`, 1},
		{2, 2, `{"a","b"}`, 4},
		{7, 0, `{"b","a"}`, 1},
	} {
		w.running = map[*attempt]bool{}
		for queue, count := range map[string]int{"a": one.a, "b": one.b} {
			for ; count > 0; count-- {
				w.running[&attempt{row: &JobRow{Queue: queue}}] = true
			}
		}
		if order, places := w.cells[0].plan(); places != one.places || order != one.queues {
			t.Errorf("with %d and %d running it fetches %d of %s", one.a, one.b, places, order)
		}
	}
}

func TestWhatCannotBeSentHoldsItsPlace(t *testing.T) {
	w := NewWorker(sql.OpenDB(nil), Options{Concurrency: 2})
	a := &attempt{row: &JobRow{Queue: "default"}, cell: w.cells[0]}
	fetches := func(want int, when string) {
		t.Helper()
		if _, places := w.cells[0].plan(); places != want {
			t.Errorf("%s it fetches %d", when, places)
		}
	}
	w.held[a] = true
	fetches(2, "while a result is sent")
	a.failures = 1
	fetches(1, "while a result is to be sent again")
	w.running[a] = true
	fetches(1, "while its handler runs as well")
	delete(w.running, a)
	a.failures = 0
	w.cells[0].finishing.failures.Store(1)
	fetches(1, "while nothing can be sent")
	delete(w.held, a)
	w.running[a] = true
	fetches(1, "while a handler goes on after its timeout was told")
	w.cells[0].command = "quiet"
	fetches(0, "when it is to be quiet")
}

func TestAShareIsWholeJobs(t *testing.T) {
	w := NewWorker(sql.OpenDB(nil), Options{Queues: []string{"a", "b", "c"}})
	if _, places := w.cells[0].plan(); places != 4 {
		t.Errorf("of a share of 3 1/3 it fetches %d", places)
	}
}

func TestOptionsThatCannotBe(t *testing.T) {
	handle := func(context.Context, *Job[json.RawMessage]) (any, error) { return nil, nil }
	for want, options := range map[string]Options{
		"Queues must name at least one queue":                                              {Queues: []string{}},
		`Queues must name each queue once, not "a" twice`:                                  {Queues: []string{"a", "b", "a"}},
		`Weights must name queues of Queues, not "b"`:                                      {Queues: []string{"a"}, Weights: map[string]float64{"b": 1}},
		`weight of queue "a" must be a positive number, not 0`:                             {Queues: []string{"a"}, Weights: map[string]float64{"a": 0}},
		`weight of queue "a" must be a positive number, not -1`:                            {Queues: []string{"a"}, Weights: map[string]float64{"a": -1}},
		`weight of queue "a" must be a positive number, not +Inf`:                          {Queues: []string{"a"}, Weights: map[string]float64{"a": math.Inf(1)}},
		`a name in Queues must have 1 to 127 characters and no control characters, not ""`: {Queues: []string{""}},
		`control characters, not "tab\t"`:                                                  {Queues: []string{"tab\t"}},
		`Name must have 1 to 127 characters and no control characters, not "üü`:            {Name: strings.Repeat("ü", 128)},
		`not "\xff"`: {Name: "\xff"},
		"Concurrency must be between 1 and 2147483647, not -1":                  {Concurrency: -1},
		"Concurrency must be between 1 and 2147483647, not 9223372036854775807": {Concurrency: math.MaxInt},
		"Timeout must be positive, or NoTimeout, not -2s":                       {Timeout: -2 * time.Second},
		"Lease must be at least 1µs, not -1s":                                   {Lease: -time.Second},
		"Lease must be at least 1µs, not 30ns":                                  {Lease: 30},
		"Grace must be positive, or NoGrace, not -1s":                           {Grace: -time.Second},
		"Prefetch must be between 0 and 2147483647, not -1":                     {Prefetch: -1},
		"Prefetch must be between 0 and 2147483647, not 2147483648":             {Prefetch: 1 << 31},
		"json: unsupported type: func(":                                         {Info: map[string]any{"f": func() {}}},
	} {
		worker := NewWorker(sql.OpenDB(nil), options)
		HandleKind(worker, "k", handle)
		if err := worker.Start(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for want, give := range map[string]func(*Worker){
		"no handlers": func(*Worker) {},
		`a kind must have 1 to 127 characters and no control characters, not "a\nb"`: func(w *Worker) { HandleKind(w, "a\nb", handle) },
		`kind "k" already has a handler`:                                             func(w *Worker) { HandleKind(w, "k", handle); HandleKind(w, "k", handle) },
		`timeout of kind "k" must be positive, or NoTimeout, not 0s`:                 func(w *Worker) { HandleKind(w, "k", handle, Timeout(0)) },
		`timeout of kind "k" must be positive, or NoTimeout, not -1m0s`:              func(w *Worker) { HandleKind(w, "k", handle, Timeout(-time.Minute)) },
		`concurrency of kind "k" must be at least 1, not 0`:                          func(w *Worker) { HandleKind(w, "k", handle, Concurrency(0)) },
		"db must allow more than 3 connections":                                      nil,
	} {
		db := sql.OpenDB(nil)
		if give == nil {
			db.SetMaxOpenConns(3)
			give = func(w *Worker) { HandleKind(w, "k", handle) }
		}
		worker := NewWorker(db, Options{Timeout: NoTimeout, Grace: NoGrace})
		give(worker)
		if err := worker.Start(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := NewWorker(sql.OpenDB(nil), Options{}).Stop(); err != nil {
		t.Errorf("a worker that was not started stops: %v", err)
	}
}

// heard keeps what is logged.
type heard struct {
	mu    sync.Mutex
	lines []string
}

// logger logs to it without times.
func (h *heard) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(h, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func (h *heard) Write(line []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, strings.TrimSpace(string(line)))
	return len(line), nil
}

// said is all of it so far.
func (h *heard) said() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.lines...)
}

func TestAFailedAttemptIsLoggedOnce(t *testing.T) {
	log := &heard{}
	a := attemptOf()
	a.cell, a.row.Kind, a.row.Attempt = NewWorker(&sql.DB{}, Options{Log: log.logger()}).cells[0], "k", 2
	a.cell.results = make(chan *attempt, 1)
	a.tell(a.fail(errors.New("first")))
	a.tell(a.fail(errors.New("second")))
	want := `[level=WARN msg="attempt failed" job=7 kind=k attempt=2 max_attempts=0 type=errors.errorString error=first]`
	if fmt.Sprint(log.lines) != want {
		t.Errorf("%v", log.lines)
	}
}

func TestFailuresWithoutAnError(t *testing.T) {
	for _, err := range []error{Discard(nil), RetryIn(time.Second, nil)} {
		if got := attemptOf().endsAs(nil, err)["error"]; got != "no error was given" {
			t.Errorf("%v", got)
		}
	}
}

func TestMiddlewareSeesAPanic(t *testing.T) {
	var seen error
	around := func(next Work) Work {
		return func(ctx context.Context, job *JobRow) (any, error) {
			output, err := next(ctx, job)
			seen = err
			return output, err
		}
	}
	w := NewWorker(&sql.DB{}, Options{Around: []func(Work) Work{around}})
	HandleKind(w, "k", func(context.Context, *Job[json.RawMessage]) (any, error) { panic("of the handler") })
	a := attemptOf()
	a.row.RawArgs = json.RawMessage("{}")
	ended := make(chan string, 1)
	a.perform(w.handler("k").work, func(result string, _ error) { ended <- result })
	details := read(<-ended)["details"].(map[string]any)
	if seen == nil || seen.Error() != "of the handler" || details["type"] != "panic" || details["trace"] == nil {
		t.Errorf("%v, %v", seen, details)
	}
}

func TestAJobHasTheContextOfMiddleware(t *testing.T) {
	around := func(next Work) Work {
		return func(ctx context.Context, job *JobRow) (any, error) {
			return next(context.WithValue(ctx, declined{}, "seen by the handler"), job)
		}
	}
	w := NewWorker(&sql.DB{}, Options{Around: []func(Work) Work{around}})
	HandleKind(w, "single", func(_ context.Context, job *Job[any]) (any, error) {
		return job.Context().Value(declined{}), nil
	})
	HandleKindBatch(w, "batch", func(_ context.Context, jobs []*Job[any]) error {
		jobs[0].End(jobs[0].Context().Value(declined{}), nil)
		return nil
	})
	for kind, h := range w.handlers {
		a := attemptOf()
		a.row.RawArgs = json.RawMessage("{}")
		newBatch(h, []*attempt{a})
		ended := make(chan string, 1)
		a.perform(h.work, func(result string, _ error) { ended <- result })
		if got := read(<-ended)["output"]; got != "seen by the handler" {
			t.Errorf("%s: %v", kind, got)
		}
	}
}

type (
	unnamed struct{}
	byField struct{ Name string }
	nilKind struct{ inner *byField }
)

func (unnamed) Kind() string    { return "" }
func (b *byField) Kind() string { return "by field" + b.Name }
func (b nilKind) Kind() string  { return b.inner.Name }

func TestKindsThatTheirArgsDoNotKnow(t *testing.T) {
	for want, handle := range map[string]func(*Worker){
		"jobs: the kind of jobs.unnamed must not be empty": func(w *Worker) {
			Handle(w, func(context.Context, *Job[unnamed]) (any, error) { return nil, nil })
		},
		"jobs: the kind of jobs.nilKind is unknown: its methods must work for the zero value": func(w *Worker) {
			Handle(w, func(context.Context, *Job[nilKind]) (any, error) { return nil, nil })
		},
		"jobs: the kind of jobs.Args is unknown: its methods must work for the zero value": func(w *Worker) {
			Handle(w, func(context.Context, *Job[Args]) (any, error) { return nil, nil })
		},
	} {
		w := NewWorker(&sql.DB{}, Options{})
		handle(w)
		if err := w.Start(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v", err)
		}
	}
	w := NewWorker(&sql.DB{}, Options{})
	Handle(w, func(context.Context, *Job[*byField]) (any, error) { return nil, nil })
	if w.err != nil || w.handlers["by field"] == nil {
		t.Errorf("a pointer: %v", w.err)
	}
	for _, args := range []Args{nil, (*byField)(nil)} {
		if _, err := Insert(context.Background(), &sql.DB{}, args); err == nil || err.Error() != "jobs: the args of a job must not be nil" {
			t.Errorf("%v", err)
		}
	}
	if _, err := Insert(context.Background(), 1, &byField{}); err == nil || !strings.HasPrefix(err.Error(), "jobs: int is no connection") {
		t.Errorf("%v", err)
	}
}

func TestRetryPolicies(t *testing.T) {
	exact := Exponential(time.Second, time.Hour)
	exact.Jitter, exact.NonRetryable, exact.AfterLease = 0.1, []string{"auth.*"}, time.Minute
	for want, retry := range map[string]Retry{
		`{"strategy":"oban"}`: Named("oban"),
		`{"strategy":"constant","initial":5,"max":5,"jitter":0}`:                                                     Constant(5 * time.Second),
		`{"strategy":"linear","initial":0.5,"max":2}`:                                                                Linear(time.Second/2, 2*time.Second),
		`{"strategy":"polynomial","initial":1,"max":2}`:                                                              Polynomial(time.Second, 2*time.Second),
		`{"strategy":"exponential","non_retryable":["auth.*"],"initial":1,"max":3600,"jitter":0.1,"after_lease":60}`: exact,
	} {
		if got, err := json.Marshal(retry); err != nil || string(got) != want {
			t.Errorf("%s, not %s (%v)", got, want, err)
		}
	}
}

type withOpts struct{ Opts InsertOpts }

func (withOpts) Kind() string             { return "with" }
func (w withOpts) InsertOpts() InsertOpts { return w.Opts }

func TestOptionsOfAnInsertGoBeforeDefaults(t *testing.T) {
	zero, unique := 0, &Unique{}
	job, err := NewJob{withOpts{InsertOpts{Queue: "q", Timeout: time.Second, Unique: &Unique{ByArgs: true}, Retry: Named("oban")}},
		InsertOpts{Priority: &zero, Timeout: NoTimeout, Unique: unique}}.withDefaults()
	got := job.InsertOpts
	if err != nil || got.Queue != "q" || *got.Priority != 0 || got.Timeout != NoTimeout || got.Unique != unique || got.Retry.Strategy != "oban" {
		t.Errorf("%+v %v", got, err)
	}
}

type tagged struct{}

func (tagged) Kind() string           { return "tagged" }
func (tagged) InsertOpts() InsertOpts { return InsertOpts{Queue: "theirs", MaxAttempts: 3} }

// spy keeps the options of a sync, which it refuses.
type spy struct{ options string }

func (s *spy) QueryContext(_ context.Context, _ string, args ...any) (*sql.Rows, error) {
	s.options = args[1].(string)
	return nil, errors.New("refused")
}

func TestAPeriodicJobOfAKindWithoutAHandlerHasTheDefaultsOfItsArgs(t *testing.T) {
	w := NewWorker(sql.OpenDB(&fake{}), Options{})
	w.Periodic("p", "@daily", tagged{}, PeriodicOpts{InsertOpts: InsertOpts{MaxAttempts: 5}})
	s := &spy{}
	if _, err := w.Sync(context.Background(), s); err == nil || s.options != `{"queue":"theirs","max_attempts":5}` {
		t.Errorf("%s (%v)", s.options, err)
	}
}
