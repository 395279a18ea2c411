// Package jobs inserts and works on jobs of the Postgres extension jobs, through pgx or
// database/sql.
//
//	type EmailArgs struct{ To string }
//
//	func (EmailArgs) Kind() string { return "email.send" }
//
//	worker := jobs.OpenWorker(url, jobs.Options{Queues: []string{"mail"}})
//	jobs.Handle(worker, func(ctx context.Context, job *jobs.Job[EmailArgs]) (any, error) {
//		return nil, send(ctx, job.Args.To)
//	})
//	worker.Main() // until SIGTERM
//
//	inserted, err := jobs.Insert(ctx, tx, EmailArgs{To: "a@example.com"})
package jobs

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.org/jobs/internal/database"
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
	// Prefetch is how many jobs to fetch beyond the free places. They wait in the worker, under the
	// lease, and start in order. Default: 0.
	Prefetch int
	// OnError is called after each failed attempt, OnDiscarded after one that discarded the job.
	OnError, OnDiscarded func(job *JobRow, err error)
	// Around is middleware around every handler, the first outermost.
	Around []func(next Work) Work
	// NoPrepare does not prepare the worker's statements, for a pooler in transaction mode. They cost
	// the server more then.
	NoPrepare bool
	// Log is the worker's logger. Default: slog.Default().
	Log *slog.Logger
}

// NoGrace means no grace period.
const NoGrace time.Duration = -1

// Work runs a job in middleware. The error can be an ending, such as Snooze.
type Work func(ctx context.Context, job *JobRow) (output any, err error)

// Worker fetches jobs and runs their handlers. It uses three connections for any number of jobs.
type Worker struct {
	connect  connector
	pool     *sql.DB // whose connections these are; nil with pgx
	options  Options
	info     []byte // in JSON
	weights  map[string]float64
	handlers map[string]*handler
	kinds    []string // that have one
	periodic []periodic
	server   server

	fetching, finishing, control *link

	stopping, cancelling context.Context // done: no more fetches; handlers are cancelled
	stop, cancel         context.CancelFunc
	ready, done          chan struct{}
	started              atomic.Bool
	results              chan *attempt // whose results are to be sent

	fetchTurn sync.Mutex
	fetches   int

	mu      sync.Mutex
	changed chan struct{} // is closed at the next change of what follows
	command string        // of an operator: run, quiet or stop
	err     error

	running map[*attempt]bool // fetched, and whose handler has not ended
	waiting []*attempt        // those of them that wait for a place
	held    map[*attempt]bool // of which the server has not had the result

	fetchers, hooks int // loops that fetch; hooks under way
	controlIsOver   bool
}

// OpenWorker returns a worker with connections of its own, through pgx. The URL is also one of
// [pgxpool.ParseConfig]. If it or an option is invalid, [Worker.Start] returns the error.
func OpenWorker(url string, options Options) *Worker {
	w := newWorker(options)
	config, err := pgxpool.ParseConfig(url)
	if w.require(err == nil, "%w", err); err == nil {
		w.usePgx(config)
	}
	return w
}

// NewWorker returns a worker that connects as a pool does. Beside a pool of pgx it has connections
// of its own. Of one of database/sql it takes three while it runs: the pool must allow more, since
// handlers need theirs as well. Invalid options are an error of [Worker.Start].
func NewWorker[P *pgxpool.Pool | *sql.DB](pool P, options Options) *Worker {
	w := newWorker(options)
	switch pool := any(pool).(type) {
	case *pgxpool.Pool:
		w.usePgx(pool.Config())
	case *sql.DB:
		w.pool, w.connect = pool, sqlConnector(pool, options.NoPrepare)
	}
	return w
}

func (w *Worker) usePgx(config *pgxpool.Config) {
	w.connect, w.server.User = pgxConnector(config, w.options.NoPrepare), config.ConnConfig.User
}

func newWorker(options Options) *Worker {
	orDefault(&options.Queues, []string{"default"})
	orDefault(&options.Concurrency, 10)
	orDefault(&options.Timeout, NoTimeout)
	orDefault(&options.Lease, 30*time.Second)
	orDefault(&options.Grace, 10*time.Second)
	host, _ := os.Hostname()
	orDefault(&options.Name, fmt.Sprintf("%.80s:%d:%08x", host, os.Getpid(), uint32(time.Now().UnixNano())))
	orDefault(&options.Info, map[string]any{}) // nil would be null, but a beat needs an object
	w := &Worker{
		options: options, command: "run", weights: map[string]float64{},
		ready: make(chan struct{}), done: make(chan struct{}), changed: make(chan struct{}),
		handlers: map[string]*handler{}, running: map[*attempt]bool{}, held: map[*attempt]bool{},
	}
	w.fetching, w.finishing = w.newLink(patience), w.newLink(patience)
	w.finishing.hasWorked.Store(true) // its errors do not end the worker
	// If this one falls silent, another one must renew the leases before they expire.
	w.control = w.newLink(w.pace() + 5*time.Second)
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
	w.require(options.Prefetch >= 0, "Prefetch must be at least 0, not %d", options.Prefetch)
	return w
}

// log returns the worker's logger.
func (w *Worker) log() *slog.Logger { return cmp.Or(w.options.Log, slog.Default()) }

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

// failIf ends the worker with an error, if there is one.
func (w *Worker) failIf(err error) {
	if err != nil {
		w.change(func() { w.require(false, "%w", err) })
		w.cancel()
	}
}

// Main is [Worker.Run] for a program that does nothing else. It returns after SIGTERM or SIGINT if
// no result was lost, so that the program can exit with status 0. Otherwise it exits with status 1.
func (w *Worker) Main() {
	if w.Run(context.Background()) != nil {
		os.Exit(1)
	}
}

// Run works until SIGTERM or SIGINT, until ctx is done, or until an operator stops the worker. Then
// it stops as Stop does; a second signal acts as StopAndCancel. The error is nil if no result was
// lost, and is logged otherwise.
func (w *Worker) Run(ctx context.Context) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	defer close(signals)
	defer signal.Stop(signals)
	if err := w.Start(); err != nil {
		w.logFailure(err)
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

// logFailure logs the error that ended the worker.
func (w *Worker) logFailure(err error) {
	w.log().Error("worker failed", "worker", w.options.Name, "error", err)
}

// Start starts the worker and returns. A worker that cannot connect keeps trying. An error that
// ends it is logged. Start installs no signal handlers. A worker can be started once.
func (w *Worker) Start() error {
	w.require(len(w.handlers) > 0, "the worker has no handlers")
	for kind, h := range w.handlers {
		w.require(h.concurrency == math.MaxInt || w.handlers[others] == nil,
			"kind %q cannot have a concurrency in a worker that has a handler for every other kind", kind)
	}
	if w.err != nil {
		return w.err
	}
	if w.pool != nil {
		if most := w.pool.Stats().MaxOpenConnections; most > 0 && most <= 3 {
			return fmt.Errorf("jobs: db must allow more than 3 connections, not %d", most)
		}
	}
	if w.started.Swap(true) {
		return fmt.Errorf("jobs: worker %q was already started", w.options.Name)
	}
	// Room for every held job, so that no result waits here.
	w.results = make(chan *attempt, 2*min(w.options.Concurrency+w.options.Prefetch, 10_000)+maxResults)
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
	err := w.meet(w.stopping)
	if err == nil {
		err = w.beat(w.stopping)
	}
	if err == nil {
		w.log().Info("worker started", w.described()...)
		close(w.ready)
		w.work()
	} else {
		w.require(w.stopping.Err() != nil, "%w", err)
		defer close(w.ready) // after done, so that the two cases differ
	}
	if w.control.hasWorked.Load() { // the server knows the worker
		w.leave()
	}
	for _, link := range []*link{w.fetching, w.finishing, w.control} {
		go link.close()
	}
	w.mu.Lock()
	err = w.err
	w.mu.Unlock()
	if err != nil {
		w.logFailure(err)
	}
	w.log().Info("worker stopped", "worker", w.options.Name)
	close(w.done)
}

// described are the fields of a log line about the worker.
func (w *Worker) described() []any {
	kinds := strings.Join(w.kinds, ", ")
	if w.handlers[others] != nil {
		kinds = "all kinds"
	}
	return []any{"worker", w.options.Name, "queues", strings.Join(w.options.Queues, ", "), "kinds", kinds,
		"concurrency", w.options.Concurrency, "database", w.server.Database, "user", w.server.User,
		"host", w.server.Host, "extension", w.server.Version, "library", Version}
}

// work fetches, renews and finishes jobs until the worker has stopped.
func (w *Worker) work() {
	working, end := context.WithCancel(context.Background())
	go w.controlLoop(working)
	go w.finishLoop(working)
	w.fetchers = 2
	go w.fetchLoop()
	go w.fetchLimitedLoop()
	if w.options.Prefetch > 0 {
		go w.startLoop()
	}
	<-w.stopping.Done()
	w.releaseWaiting()
	isDone := func() bool { return w.fetchers == 0 && len(w.running) == 0 }
	w.await(w.cancelling, isDone)
	w.cancel()
	for _, a := range w.list(w.running) {
		a.cancel(ErrStopping)
	}
	w.awaitFor(time.Second, isDone)
	for _, a := range w.list(w.running) {
		w.log().Warn("handler did not stop", a.fields()...)
		if a.completed.Load() {
			a.tell("", nil) // its transaction decides the outcome
		}
		a.tell(a.encode("release", object{}), nil) // unless the outcome is decided
	}
	w.awaitFor(10*time.Second, func() bool { return w.fetchers == 0 && w.hooks == 0 && len(w.held) == 0 })
	if unsent := len(w.list(w.held)); unsent > 0 {
		w.log().Error("results could not be sent", "worker", w.options.Name, "results", unsent)
		w.change(func() { w.require(false, "results could not be sent: %d", unsent) })
	}
	end()
	w.awaitFor(time.Second, func() bool { return w.controlIsOver })
}

// startLoop starts jobs that were fetched ahead, as places get free.
func (w *Worker) startLoop() {
	for w.await(w.stopping, func() bool { return len(w.waiting) > 0 && w.free() > 0 }) {
		w.startWaiting()
	}
}

// leave removes the worker from jobs.workers, if the server answers soon.
func (w *Worker) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = try(ctx, ctx, w.finishing, database.Value[bool], "SELECT jobs.worker_leave($1)", []any{w.options.Name})
}

// pace is how long the control connection waits for requests.
func (w *Worker) pace() time.Duration { return min(w.options.Lease/3, 10*time.Second) }

// controlLoop sends beats, renews leases, and receives commands and cancel requests.
func (w *Worker) controlLoop(ctx context.Context) {
	defer w.change(func() { w.controlIsOver = true })
	for ctx.Err() == nil {
		_ = w.control.wait(ctx, "CALL jobs.wait_any('{}', $1, worker => $2)", interval(w.pace()), w.options.Name)
		if err := w.beat(ctx); err != nil && ctx.Err() == nil {
			w.log().Error("heartbeat refused, retrying", "error", oneLine(err))
			w.pause(ctx, w.pace()/2)
		}
	}
}

// beat sends a beat, renews the leases and obeys the answers. It reads command without the mutex,
// since only beat writes it, and beats do not overlap.
func (w *Worker) beat(ctx context.Context) error {
	commands, err := query(ctx, w.control, database.Value[string], "SELECT jobs.worker_beat($1, $2, $3, $4::jsonb || $5)",
		w.options.Name, array(w.options.Queues), w.options.Concurrency, library, string(w.info))
	if err != nil {
		return err
	}
	if command := commands[0]; command != w.command {
		w.log().Info("operator command received", "worker", w.options.Name, "command", command)
		w.change(func() { w.command = command })
	}
	if w.command == "stop" {
		w.stop()
	}
	w.releaseWaiting()
	held, ids, tokens := w.list(w.held), []int64{}, []int64{}
	for _, a := range held {
		ids, tokens = append(ids, a.row.ID), append(tokens, a.token)
	}
	answers, err := query(ctx, w.control, database.Value[*bool],
		`SELECT cancel_requested FROM generate_series(1, cardinality($1::bigint[]), 10000) n,
		   jobs.heartbeat_many(($1::bigint[])[n:n + 9999], ($2::bigint[])[n:n + 9999])`, array(ids), array(tokens))
	for i, isCancelled := range answers {
		switch a := held[i]; {
		case a.completed.Load():
		case isCancelled == nil && !a.settled.Load(): // else its result is being sent
			w.log().Warn("job lost", a.fields()...)
			w.unqueue(a)
			w.forget(a)
			a.cancel(ErrLost)
		case isCancelled != nil && *isCancelled:
			if a.cancel(ErrCancelled); w.unqueue(a) {
				a.tell(a.encode("release", object{}), nil)
			}
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
		time.Sleep(min(pause, time.Second))
	}
}

// interval is a duration as an argument of a statement; a negative one is zero.
func interval(d time.Duration) string { return fmt.Sprintf("%.6f s", math.Max(0, d.Seconds())) }
