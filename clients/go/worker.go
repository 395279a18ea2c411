// Package jobs works and inserts jobs of the Postgres extension jobs, a job queue, by database/sql
// with any driver.
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

// Version is that of this library.
const Version = "0.1.0"

// library is what every worker says of itself in jobs.workers.
const library = `{"library": "postgres-jobs for Go", "version": "` + Version + `"}`

// Options are those of a worker. The zero value is the default of each.
type Options struct {
	// Queues are the names of the queues to fetch from. They share the places, and what a queue does
	// not use the others may. Default: "default".
	Queues []string
	// Weights are how many shares queues have. Default: 1 each.
	Weights map[string]float64
	// Concurrency is the most handlers that run at a time. Default: 10.
	Concurrency int
	// Timeout is how long a handler may run; that of a kind goes first. Default: [NoTimeout], no limit
	// but the job's own.
	Timeout time.Duration
	// Lease is how long a dead worker goes unnoticed. Default: 30 s.
	Lease time.Duration
	// Grace is how long handlers may go on after a stop. Default: 10 s; [NoGrace]: not at all.
	Grace time.Duration
	// Name is that of the worker in jobs.workers. Default: host, process id and a random number.
	Name string
	// Info is shown in jobs.workers; the library adds its name and version.
	Info map[string]any
	// Around is middleware: a function around every handler, the first one outermost.
	Around []func(next Work) Work
	// NoPrepare is for a pooler that gives each transaction another session: the worker's statements
	// are not prepared then, and cost the server more.
	NoPrepare bool
	// Log is what the worker logs to, such as a *slog.Logger. Default: the standard logger.
	Log Logger
}

// NoGrace is the grace period that is none.
const NoGrace time.Duration = -1

// Logger is what a worker logs to. A *slog.Logger is one. The args are names and values by turns.
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

// Work runs a job, in middleware. The error can be one of the endings, such as Snooze.
type Work func(ctx context.Context, job *JobRow) (output any, err error)

// Worker fetches jobs and runs their handlers. It has three connections, however many jobs it runs.
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

// OpenWorker is a worker with a pool of its own, as [sql.Open] opens it. A worker that was started
// closes its connections and the pool when it has ended. An unknown driver is an error of the
// start, as options that cannot be are. Where handlers need the database, give their pool to
// [NewWorker].
func OpenWorker(driverName, dataSourceName string, options Options) *Worker {
	db, err := sql.Open(driverName, dataSourceName)
	w := NewWorker(db, options)
	w.closePool = db.Close
	w.require(err == nil, "%w", err)
	return w
}

// NewWorker is a worker that takes its three connections from db for as long as it runs. So db must
// allow for more than three, as the handlers need theirs as well. Options that cannot be are an
// error of the start.
func NewWorker(db *sql.DB, options Options) *Worker {
	orDefault(&options.Queues, []string{"default"})
	orDefault(&options.Concurrency, 10)
	orDefault(&options.Timeout, NoTimeout)
	orDefault(&options.Lease, 30*time.Second)
	orDefault(&options.Grace, 10*time.Second)
	host, _ := os.Hostname()
	orDefault(&options.Name, fmt.Sprintf("%.80s:%d:%08x", host, os.Getpid(), uint32(time.Now().UnixNano())))
	orDefault(&options.Info, map[string]any{}) // nil would be null, and beat needs an object
	orDefault(&options.Log, Logger(standardLogger{}))
	w := &Worker{
		db: db, closePool: func() error { return nil }, options: options, command: "run", weights: map[string]float64{},
		ready: make(chan struct{}), done: make(chan struct{}), changed: make(chan struct{}),
		handlers: map[string]handler{}, running: map[*attempt]bool{}, held: map[*attempt]bool{},
	}
	w.fetching = &link{worker: w, patience: patience, turn: make(chan struct{}, 1)}
	w.finishing = &link{worker: w, patience: patience, turn: make(chan struct{}, 1)}
	// When this one falls silent, another one is to renew the leases before they end.
	w.control = &link{worker: w, patience: w.pace() + 5*time.Second, turn: make(chan struct{}, 1)}
	w.cancelling, w.cancel = context.WithCancel(context.Background())
	w.stopping, w.stop = context.WithCancel(w.cancelling)
	w.info, w.err = json.Marshal(options.Info)
	w.require(len(options.Queues) > 0, "Queues is empty")
	for _, queue := range options.Queues {
		w.require(w.weights[queue] == 0, "Queues has %q twice", queue)
		w.weights[queue] = 1
	}
	for queue, weight := range options.Weights {
		w.require(w.weights[queue] > 0, "Weights has %q, which is not in Queues", queue)
		w.require(weight > 0 && !math.IsInf(weight, 1), "Weights has %q with %v: not a positive number", queue, weight)
		w.weights[queue] = weight
	}
	w.require(options.Concurrency > 0, "Concurrency is %d: not at least 1", options.Concurrency)
	w.require(options.Timeout > 0 || options.Timeout == NoTimeout, "Timeout is %v: above 0, or NoTimeout", options.Timeout)
	w.require(options.Lease > 0, "Lease is %v: not positive", options.Lease)
	w.require(options.Grace >= 0 || options.Grace == NoGrace, "Grace is %v: neither positive nor NoGrace", options.Grace)
	return w
}

// orDefault sets an option that has its zero value.
func orDefault[T any](option *T, otherwise T) {
	if reflect.ValueOf(option).Elem().IsZero() {
		*option = otherwise
	}
}

// require keeps what is wrong until the start, the first of it.
func (w *Worker) require(isRight bool, format string, args ...any) {
	if !isRight && w.err == nil {
		w.err = fmt.Errorf("jobs: "+format, args...)
	}
}

// Main is [Worker.Run] for a program that does nothing else, until SIGTERM or SIGINT. It returns if
// nothing was lost, so that the program can end with status 0. Otherwise it logs the error and ends
// the program with status 1.
func (w *Worker) Main() {
	if err := w.Run(context.Background()); err != nil {
		w.options.Log.Error("the worker has failed", "worker", w.options.Name, "error", err)
		os.Exit(1)
	}
}

// Run works until SIGTERM or SIGINT, until ctx is done, or until an operator stops the worker. Then
// it stops as Stop does; a second signal is as StopAndCancel. The error is nil if nothing was lost.
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

// Start begins to work and returns. A worker that cannot connect tries on until it can. Signals
// are left to the program. A worker is started once.
func (w *Worker) Start() error {
	w.require(len(w.handlers) > 0, "the worker has no handlers")
	if w.err != nil {
		return w.err
	}
	if most := w.db.Stats().MaxOpenConnections; most > 0 && most <= 3 {
		return fmt.Errorf("jobs: a worker takes three connections, and db has only %d", most)
	}
	if w.started.Swap(true) {
		return fmt.Errorf("jobs: worker %q was started before: it is started once", w.options.Name)
	}
	// As many as are held at most, so that none waits here.
	w.results = make(chan *attempt, 2*least(w.options.Concurrency, 10_000)+maxResults)
	go w.live()
	return nil
}

// Ready is closed when the server knows the worker. It is closed after Done where the worker ends
// before: the error of Stop then says why.
func (w *Worker) Ready() <-chan struct{} { return w.ready }

// Done is closed when the worker has ended: after a stop, also that of an operator.
func (w *Worker) Done() <-chan struct{} { return w.done }

// Stop ends the worker, and returns when it has ended. It fetches no more. Handlers have the grace
// period, then they are cancelled and their jobs released. The error is nil if nothing was lost.
func (w *Worker) Stop() error {
	w.stop()
	time.AfterFunc(w.options.Grace, w.cancel)
	if w.started.Load() {
		<-w.done
	}
	return w.err
}

// StopAndCancel ends the worker without a grace period.
func (w *Worker) StopAndCancel() error { w.cancel(); return w.Stop() }

// live is the worker's whole life.
func (w *Worker) live() {
	w.options.Log.Info("the worker starts", "worker", w.options.Name)
	if err := w.beat(w.stopping); err == nil {
		close(w.ready)
		w.work()
	} else {
		w.require(w.stopping.Err() != nil, "the server refuses the worker: %w", err)
		defer close(w.ready) // after done, so that one can tell
	}
	for _, link := range []*link{w.fetching, w.finishing, w.control} {
		go link.close()
	}
	_ = w.closePool() // but for a connection with a call under way, which its link closes
	w.options.Log.Info("the worker has ended", "worker", w.options.Name)
	close(w.done)
}

// work fetches, keeps and finishes jobs until the worker is to stop, and all of it has ended.
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
		w.options.Log.Warn("a handler is left behind", a.fields()...)
		if a.completed.Load() {
			a.tell("", nil) // its transaction says what becomes of the job
		}
		a.tell(a.encode("release", object{}), nil) // unless that is told
	}
	w.awaitFor(10*time.Second, func() bool { return w.fetchIsOver && len(w.held) == 0 })
	unsent := w.list(w.held)
	for _, a := range unsent {
		w.options.Log.Error("a result could not be sent", a.fields()...)
	}
	w.require(len(unsent) == 0, "%d results could not be sent", len(unsent))
	end()
	w.awaitFor(time.Second, func() bool { return w.controlIsOver })
}

// pace is how long control waits for requests.
func (w *Worker) pace() time.Duration { return least(w.options.Lease/3, 10*time.Second) }

// controlLoop says that the worker is there and renews leases, and hears what is asked of it.
func (w *Worker) controlLoop(ctx context.Context) {
	defer w.change(func() { w.controlIsOver = true })
	for ctx.Err() == nil {
		w.control.wait(ctx, "CALL jobs.wait_any('{}', $1, worker => $2)", interval(w.pace()), w.options.Name)
		if err := w.beat(ctx); err != nil && ctx.Err() == nil {
			w.options.Log.Error("the server refuses a heartbeat", "error", err)
			w.pause(ctx, w.pace()/2)
		}
	}
}

// beat says that the worker is there and renews its leases, and obeys the answers. It reads command
// without the mutex: nothing but itself writes that, and one beat follows another.
func (w *Worker) beat(ctx context.Context) error {
	commands, err := query(ctx, w.control, value[string], "SELECT jobs.worker_beat($1, $2, $3, $4::jsonb || $5)",
		w.options.Name, array(w.options.Queues), w.options.Concurrency, library, string(w.info))
	if err != nil {
		return err
	}
	if command := commands[0]; command != w.command {
		w.options.Log.Info("an operator has given a command", "worker", w.options.Name, "command", command)
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
		case !isCancelled.Valid && !a.settled.Load(): // else its result is on its way
			w.options.Log.Warn("a job was lost", a.fields()...)
			w.forget(a)
			a.cancel(ErrLost)
		}
	}
	return err
}

// change changes what the mutex guards.
func (w *Worker) change(how func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	how()
	close(w.changed)
	w.changed = make(chan struct{})
}

// await waits until something is so. It is false if ctx is done first. Handlers that are ready to
// end go first, until none is: they make room for one fetch.
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

// awaitFor is as await, for so long at most.
func (w *Worker) awaitFor(limit time.Duration, isSo func() bool) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	w.await(ctx, isSo)
}

// list are the attempts of a set.
func (w *Worker) list(set map[*attempt]bool) (attempts []*attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for a := range set {
		attempts = append(attempts, a)
	}
	return attempts
}

// pause sleeps for about as long, 25 % either way, so that workers do not come all at once. When a
// worker cancels its handlers it sleeps for a second at most.
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
