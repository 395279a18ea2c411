// Package jobs inserts and works on jobs of the Postgres extension jobs, by database/sql with any
// driver.
//
//	type EmailArgs struct{ To string }
//
//	func (EmailArgs) Kind() string { return "email.send" }
//
//	worker := jobs.OpenWorker("postgres", url, jobs.Options{Queues: []string{"mail"}})
//	jobs.Handle(worker, func(ctx context.Context, job *jobs.Job[EmailArgs]) (any, error) {
//		return nil, send(ctx, job.Args.To)
//	})
//	worker.Main() // until SIGTERM
//
//	inserted, err := jobs.Insert(ctx, tx, EmailArgs{To: "a@example.com"})
package jobs

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log"
	"math"
	"os"
	"os/signal"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Version is the version of this library.
const Version = "0.1.0"

// library is the info of every worker in jobs.workers.
const library = `{"library": "postgres-jobs for Go", "version": "` + Version + `"}`

// Options configure a worker. Zero values mean the defaults.
type Options struct {
	// Queues are the queues to fetch from. They share the places; places that a queue does not use
	// go to the others. Default: "default".
	Queues []string
	// Weights are the shares of queues. Default: 1 each.
	Weights map[string]float64
	// Concurrency is the maximum number of handlers that run at once. Default: 10.
	Concurrency int
	// Timeout is how long a handler may run, unless its kind has a timeout. Default: [NoTimeout], no
	// limit but the job's.
	Timeout time.Duration
	// Lease is how long a job stays with a dead worker before it is rescued. Default: 30 s.
	Lease time.Duration
	// Grace is how long handlers may go on after a stop, or [NoGrace]. Default: 10 s.
	Grace time.Duration
	// Name is the worker's name in jobs.workers. Default: HOST:PID:RANDOM.
	Name string
	// Info is shown in jobs.workers. The library adds its name and version.
	Info map[string]any
	// Around is middleware around every handler, the first outermost.
	Around []func(next Work) Work
	// NoPrepare does not prepare the worker's statements, for a pooler in transaction mode. They cost
	// the server more then.
	NoPrepare bool
	// Log is the worker's logger, such as a *slog.Logger. Default: the standard logger.
	Log Logger
}

// NoGrace means no grace period.
const NoGrace time.Duration = -1

// Logger is a worker's logger, such as a *slog.Logger. The args are alternating names and values.
type Logger interface {
	Info(message string, args ...any)
	Warn(message string, args ...any)
	Error(message string, args ...any)
}

// standardLogger logs to the logger of package log.
type standardLogger struct{}

func (standardLogger) Info(message string, args ...any)  { log.Println("INFO jobs:", message, args) }
func (standardLogger) Warn(message string, args ...any)  { log.Println("WARN jobs:", message, args) }
func (standardLogger) Error(message string, args ...any) { log.Println("ERROR jobs:", message, args) }

// Work runs a job in middleware. The error can be an ending, such as Snooze.
type Work func(ctx context.Context, job *JobRow) (output any, err error)

// Worker fetches jobs and runs their handlers. It uses three connections for any number of jobs.
type Worker struct {
	db        *sql.DB
	closePool func() error // does nothing where the pool is the program's
	options   Options
	info      []byte // in JSON
	weights   map[string]float64
	handlers  map[string]handler
	kinds     []string // that have one

	fetching, finishing, control *link

	stopping, cancelling context.Context // done: no more fetches; handlers are cancelled
	stop, cancel         context.CancelFunc
	ready, done          chan struct{}
	started              atomic.Bool
	results              chan *attempt // whose results are to be sent

	mu      sync.Mutex
	changed chan struct{} // is closed at the next change of what follows
	command string        // of an operator: run, quiet or stop
	order   string        // the queues from which to fetch next, as an argument of a call
	places  int           // for how many jobs
	err     error

	running, held map[*attempt]bool // whose handler runs; of which the server has not had the result

	fetchIsOver, controlIsOver bool // of the loops
}

// OpenWorker returns a worker with its own pool, which it opens with [sql.Open] and closes when it
// stops. An unknown driver and invalid options are errors of [Worker.Start]. If handlers need the
// database, pass their pool to [NewWorker] instead.
func OpenWorker(driverName, dataSourceName string, options Options) *Worker {
	db, err := sql.Open(driverName, dataSourceName)
	w := NewWorker(db, options)
	w.closePool = db.Close
	w.require(err == nil, "%w", err)
	return w
}

// NewWorker returns a worker that takes its three connections from db while it runs. db must allow
// more than three, since handlers need theirs as well. Invalid options are an error of
// [Worker.Start].
func NewWorker(db *sql.DB, options Options) *Worker {
	orDefault(&options.Queues, []string{"default"})
	orDefault(&options.Concurrency, 10)
	orDefault(&options.Timeout, NoTimeout)
	orDefault(&options.Lease, 30*time.Second)
	orDefault(&options.Grace, 10*time.Second)
	host, _ := os.Hostname()
	orDefault(&options.Name, fmt.Sprintf("%.80s:%d:%08x", host, os.Getpid(), uint32(time.Now().UnixNano())))
	orDefault(&options.Info, map[string]any{}) // nil would be null, but a beat needs an object
	orDefault(&options.Log, Logger(standardLogger{}))
	w := &Worker{
		db: db, closePool: func() error { return nil }, options: options, command: "run", weights: map[string]float64{},
		ready: make(chan struct{}), done: make(chan struct{}), changed: make(chan struct{}),
		handlers: map[string]handler{}, running: map[*attempt]bool{}, held: map[*attempt]bool{},
	}
	w.fetching = &link{worker: w, patience: patience, turn: make(chan struct{}, 1)}
	w.finishing = &link{worker: w, patience: patience, turn: make(chan struct{}, 1)}
	// If this one falls silent, another one must renew the leases before they expire.
	w.control = &link{worker: w, patience: w.pace() + 5*time.Second, turn: make(chan struct{}, 1)}
	w.cancelling, w.cancel = context.WithCancel(context.Background())
	w.stopping, w.stop = context.WithCancel(w.cancelling)
	w.info, w.err = json.Marshal(options.Info)
	w.require(len(options.Queues) > 0, "Queues must name at least one queue")
	for _, queue := range options.Queues {
		w.require(w.weights[queue] == 0, "Queues must name each queue once, not %q twice", queue)
		w.weights[queue] = 1
	}
	for queue, weight := range options.Weights {
		w.require(w.weights[queue] > 0, "Weights must name queues of Queues, not %q", queue)
		w.require(weight > 0 && !math.IsInf(weight, 1), "the weight of queue %q must be a positive number, not %v", queue, weight)
		w.weights[queue] = weight
	}
	w.require(options.Concurrency > 0, "Concurrency must be at least 1, not %d", options.Concurrency)
	w.require(options.Timeout > 0 || options.Timeout == NoTimeout, "Timeout must be positive, or NoTimeout, not %v", options.Timeout)
	w.require(options.Lease > 0, "Lease must be positive, not %v", options.Lease)
	w.require(options.Grace >= 0 || options.Grace == NoGrace, "Grace must be positive, or NoGrace, not %v", options.Grace)
	return w
}

// orDefault sets an option that has its zero value.
func orDefault[T any](option *T, otherwise T) {
	if reflect.ValueOf(option).Elem().IsZero() {
		*option = otherwise
	}
}

// require keeps the first error until the start.
func (w *Worker) require(isRight bool, format string, args ...any) {
	if !isRight && w.err == nil {
		w.err = fmt.Errorf("jobs: "+format, args...)
	}
}

// Main is [Worker.Run] for a program that does nothing else. It returns after SIGTERM or SIGINT if
// no result was lost, so that the program can exit with status 0. Otherwise it logs the error and
// exits with status 1.
func (w *Worker) Main() {
	if err := w.Run(context.Background()); err != nil {
		w.options.Log.Error("worker failed", "worker", w.options.Name, "error", err)
		os.Exit(1)
	}
}

// Run works until SIGTERM or SIGINT, until ctx is done, or until an operator stops the worker. Then
// it stops as Stop does; a second signal acts as StopAndCancel. The error is nil if no result was
// lost.
func (w *Worker) Run(ctx context.Context) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	defer close(signals)
	defer signal.Stop(signals)
	if err := w.Start(); err != nil {
		return err
	}
	select {
	case <-signals:
	case <-ctx.Done():
	case <-w.done:
	}
	go func() { <-signals; w.cancel() }()
	return w.Stop()
}

// Start starts the worker and returns. A worker that cannot connect keeps trying. Start installs no
// signal handlers. A worker can be started once.
func (w *Worker) Start() error {
	w.require(len(w.handlers) > 0, "the worker has no handlers")
	if w.err != nil {
		return w.err
	}
	if most := w.db.Stats().MaxOpenConnections; most > 0 && most <= 3 {
		return fmt.Errorf("jobs: db must allow more than 3 connections, not %d", most)
	}
	if w.started.Swap(true) {
		return fmt.Errorf("jobs: worker %q was already started", w.options.Name)
	}
	// Room for every held job, so that no result waits here.
	w.results = make(chan *attempt, 2*least(w.options.Concurrency, 10_000)+maxResults)
	go w.live()
	return nil
}

// Ready is closed when the server knows the worker. If the worker ends before that, Ready is closed
// after Done, and Stop returns the error.
func (w *Worker) Ready() <-chan struct{} { return w.ready }

// Done is closed when the worker has stopped, also by an operator's command.
func (w *Worker) Done() <-chan struct{} { return w.done }

// Stop stops fetching and gives handlers the grace period. Then it cancels them and releases their
// jobs. It returns when the worker has stopped. The error is nil if no result was lost.
func (w *Worker) Stop() error {
	w.stop()
	time.AfterFunc(w.options.Grace, w.cancel)
	if w.started.Load() {
		<-w.done
	}
	return w.err
}

// StopAndCancel stops the worker without a grace period.
func (w *Worker) StopAndCancel() error { w.cancel(); return w.Stop() }

// live is the worker's whole life.
func (w *Worker) live() {
	w.options.Log.Info("worker started", "worker", w.options.Name)
	if err := w.beat(w.stopping); err == nil {
		close(w.ready)
		w.work()
	} else {
		w.require(w.stopping.Err() != nil, "the server refused the worker: %w", err)
		defer close(w.ready) // after done, so that the two cases differ
	}
	for _, link := range []*link{w.fetching, w.finishing, w.control} {
		go link.close()
	}
	_ = w.closePool() // a connection with a call under way is closed by its link
	w.options.Log.Info("worker stopped", "worker", w.options.Name)
	close(w.done)
}

// work fetches, renews and finishes jobs until the worker has stopped.
func (w *Worker) work() {
	working, end := context.WithCancel(context.Background())
	go w.controlLoop(working)
	go w.finishLoop(working)
	go w.fetchLoop()
	<-w.stopping.Done()
	isDone := func() bool { return w.fetchIsOver && len(w.running) == 0 }
	w.await(w.cancelling, isDone)
	w.cancel()
	for _, a := range w.list(w.running) {
		a.cancel(ErrStopping)
	}
	w.awaitFor(time.Second, isDone)
	for _, a := range w.list(w.running) {
		w.options.Log.Warn("handler did not stop", a.fields()...)
		if a.completed.Load() {
			a.tell("", nil) // its transaction decides the outcome
		}
		a.tell(a.encode("release", object{}), nil) // unless the outcome is decided
	}
	w.awaitFor(10*time.Second, func() bool { return w.fetchIsOver && len(w.held) == 0 })
	unsent := w.list(w.held)
	for _, a := range unsent {
		w.options.Log.Error("result could not be sent", a.fields()...)
	}
	w.require(len(unsent) == 0, "results could not be sent: %d", len(unsent))
	end()
	w.awaitFor(time.Second, func() bool { return w.controlIsOver })
}

// pace is how long the control connection waits for requests.
func (w *Worker) pace() time.Duration { return least(w.options.Lease/3, 10*time.Second) }

// controlLoop sends beats, renews leases, and receives commands and cancel requests.
func (w *Worker) controlLoop(ctx context.Context) {
	defer w.change(func() { w.controlIsOver = true })
	for ctx.Err() == nil {
		w.control.wait(ctx, "CALL jobs.wait_any('{}', $1, worker => $2)", interval(w.pace()), w.options.Name)
		if err := w.beat(ctx); err != nil && ctx.Err() == nil {
			w.options.Log.Error("heartbeat refused, retrying", "error", err)
			w.pause(ctx, w.pace()/2)
		}
	}
}

// beat sends a beat, renews the leases and obeys the answers. It reads command without the mutex,
// since only beat writes it, and beats do not overlap.
func (w *Worker) beat(ctx context.Context) error {
	commands, err := query(ctx, w.control, value[string], "SELECT jobs.worker_beat($1, $2, $3, $4::jsonb || $5)",
		w.options.Name, array(w.options.Queues), w.options.Concurrency, library, string(w.info))
	if err != nil {
		return err
	}
	if command := commands[0]; command != w.command {
		w.options.Log.Info("operator command received", "worker", w.options.Name, "command", command)
		w.change(func() { w.command = command })
	}
	if w.command == "stop" {
		w.stop()
	}
	held, ids, tokens := w.list(w.held), []int64{}, []int64{}
	for _, a := range held {
		ids, tokens = append(ids, a.row.ID), append(tokens, a.token)
	}
	answers, err := query(ctx, w.control, value[sql.NullBool],
		`SELECT cancel_requested FROM generate_series(1, cardinality($1::bigint[]), 10000) n,
		   jobs.heartbeat_many(($1::bigint[])[n:n + 9999], ($2::bigint[])[n:n + 9999])`, array(ids), array(tokens))
	for i, isCancelled := range answers {
		switch a := held[i]; {
		case a.completed.Load():
		case isCancelled.Bool:
			a.cancel(ErrCancelled)
		case !isCancelled.Valid && !a.settled.Load(): // else its result is being sent
			w.options.Log.Warn("job lost", a.fields()...)
			w.forget(a)
			a.cancel(ErrLost)
		}
	}
	return err
}

// change changes state that the mutex guards.
func (w *Worker) change(how func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	how()
	close(w.changed)
	w.changed = make(chan struct{})
}

// await waits until isSo returns true, or returns false if ctx is done first. Handlers that are
// ready to end go first: they make room for one fetch.
func (w *Worker) await(ctx context.Context, isSo func() bool) bool {
	for seen := (chan struct{})(nil); ctx.Err() == nil; {
		runtime.Gosched()
		w.mu.Lock()
		changed, so := w.changed, w.changed == seen && isSo()
		w.mu.Unlock()
		if so {
			return true
		} else if changed == seen {
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
		seen = changed
	}
	return false
}

// awaitFor is await with a time limit.
func (w *Worker) awaitFor(limit time.Duration, isSo func() bool) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	w.await(ctx, isSo)
}

// list returns the attempts of a set.
func (w *Worker) list(set map[*attempt]bool) (attempts []*attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for a := range set {
		attempts = append(attempts, a)
	}
	return attempts
}

// pause sleeps for the duration ± 25 %, so that workers do not all return at once. Once the worker
// cancels its handlers, it sleeps for at most a second.
func (w *Worker) pause(ctx context.Context, pause time.Duration) {
	pause += pause * time.Duration(time.Now().Nanosecond()/1000%1000-500) / 2000
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	case <-w.cancelling.Done():
		time.Sleep(least(pause, time.Second))
	}
}

// interval is a duration as an argument of a statement; a negative one is zero.
func interval(d time.Duration) string { return fmt.Sprintf("%.6f s", math.Max(0, d.Seconds())) }
