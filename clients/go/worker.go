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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/text/unicode/norm"

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
	// Grace is how long handlers may run after a stop, or [NoGrace]. Default: 10 s.
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
	cells    []*cell
	options  Options
	info     []byte // in JSON
	weights  map[string]float64
	handlers map[string]*handler
	kinds    []string // that have one
	periodic []periodic

	stopping, cancelling context.Context // done: no more fetches; handlers are cancelled
	stop, cancel         context.CancelFunc
	ready, done          chan struct{}
	isReady              sync.Once
	started              atomic.Bool

	mu      sync.Mutex
	changed chan struct{} // is closed at the next change of what follows
	err     error

	running map[*attempt]bool // fetched, and whose handler has not ended
	waiting []*attempt        // those of them that wait for a place
	held    map[*attempt]bool // of which the server has not had the result

	hooks, fetches, controls int // under way
}

// cell is a database that a worker works for.
type cell struct {
	*Worker
	connect connector
	pool    *sql.DB // whose connections these are; nil with pgx
	server  server
	results chan *attempt // whose results are to be sent

	fetching, finishing, control *link

	// Guarded by the worker's mutex:
	seen    *seen
	queues  []string        // of the worker's, which live here
	command string          // of an operator: run, quiet or stop
	isIdle  bool            // it fetches once there are places
	rewait  func()          // ends a wait for jobs
	isRich  map[string]bool // kinds with a concurrency of which there may be more jobs
}

// OpenWorker returns a worker with connections of its own, through pgx. The URL, or that of each
// cell, is also one of [pgxpool.ParseConfig]. If it or an option is invalid, [Worker.Start] returns
// the error.
func OpenWorker[U string | []string](url U, options Options) *Worker {
	w := newWorker(options)
	urls, isList := any(url).([]string)
	if !isList {
		urls = []string{any(url).(string)}
	}
	for _, url := range urls {
		config, err := pgxpool.ParseConfig(url)
		if w.require(err == nil, "%w", err); err == nil {
			w.usePgx(config)
		}
	}
	return w
}

// NewWorker returns a worker that connects as a pool does, or as those of several cells do. Beside
// a pool of pgx it has connections of its own. Of one of database/sql it takes three while it runs:
// the pool must allow more, since handlers need theirs as well. Invalid options are an error of
// [Worker.Start].
func NewWorker[P *pgxpool.Pool | *sql.DB | []*pgxpool.Pool | []*sql.DB](pool P, options Options) *Worker {
	w := newWorker(options)
	useSQL := func(pool *sql.DB) { w.add(&cell{pool: pool, connect: sqlConnector(pool, options.NoPrepare)}) }
	switch pool := any(pool).(type) {
	case *pgxpool.Pool:
		w.usePgx(pool.Config())
	case *sql.DB:
		useSQL(pool)
	case []*pgxpool.Pool:
		for _, pool := range pool {
			w.usePgx(pool.Config())
		}
	case []*sql.DB:
		for _, pool := range pool {
			useSQL(pool)
		}
	}
	return w
}

func (w *Worker) usePgx(config *pgxpool.Config) {
	w.add(&cell{connect: pgxConnector(config, w.options.NoPrepare), server: server{User: config.ConnConfig.User}})
}

// add adds a cell.
func (w *Worker) add(c *cell) {
	c.Worker, c.queues, c.command, c.isRich = w, w.options.Queues, "run", map[string]bool{}
	c.fetching, c.finishing = c.newLink(patience), c.newLink(patience)
	c.finishing.hasWorked.Store(true) // its errors do not end the worker
	// If this one falls silent, another one must renew the leases before they expire.
	c.control = c.newLink(w.pace() + 5*time.Second)
	w.cells = append(w.cells, c)
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
		options: options, weights: map[string]float64{},
		ready: make(chan struct{}), done: make(chan struct{}), changed: make(chan struct{}),
		handlers: map[string]*handler{}, running: map[*attempt]bool{}, held: map[*attempt]bool{},
	}
	w.cancelling, w.cancel = context.WithCancel(context.Background())
	w.stopping, w.stop = context.WithCancel(w.cancelling)
	w.info, w.err = json.Marshal(options.Info)
	w.require(len(options.Queues) > 0, "Queues must name at least one queue")
	w.options.Queues = nil
	for _, queue := range options.Queues {
		queue = norm.NFC.String(queue) // as the database stores it
		w.options.Queues = append(w.options.Queues, queue)
		w.requireName("a name in Queues", queue)
		w.require(w.weights[queue] == 0, "Queues must name each queue once, not %q twice", queue)
		w.weights[queue] = 1
	}
	for queue, weight := range options.Weights {
		queue = norm.NFC.String(queue)
		w.require(w.weights[queue] > 0, "Weights must name queues of Queues, not %q", queue)
		w.require(weight > 0 && !math.IsInf(weight, 1), "the weight of queue %q must be a positive number, not %v", queue, weight)
		w.weights[queue] = weight
	}
	w.requireName("Name", options.Name)
	w.require(options.Concurrency > 0 && options.Concurrency <= math.MaxInt32, "Concurrency must be between 1 and %d, not %d", math.MaxInt32, options.Concurrency)
	w.require(options.Timeout > 0 || options.Timeout == NoTimeout, "Timeout must be positive, or NoTimeout, not %v", options.Timeout)
	w.require(options.Lease >= time.Microsecond, "Lease must be at least %v, not %v", time.Microsecond, options.Lease)
	w.require(options.Grace >= 0 || options.Grace == NoGrace, "Grace must be positive, or NoGrace, not %v", options.Grace)
	w.require(options.Prefetch >= 0 && options.Prefetch <= math.MaxInt32, "Prefetch must be between 0 and %d, not %d", math.MaxInt32, options.Prefetch)
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

// requireName checks the name of a queue, a kind or a worker as the database does.
func (w *Worker) requireName(what, name string) {
	length := utf8.RuneCountInString(norm.NFC.String(name))
	isRight := length > 0 && length <= 127 && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
	w.require(isRight, "%s must have 1 to 127 characters and no control characters, not %q", what, name)
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
	w.require(len(w.cells) > 0, "the worker has no database")
	for _, c := range w.cells {
		if c.pool != nil {
			most := c.pool.Stats().MaxOpenConnections
			w.require(most == 0 || most > 3, "db must allow more than 3 connections, not %d", most)
		}
		// Room for every held job, so that no result waits here.
		c.results = make(chan *attempt, 2*min(w.options.Concurrency+w.options.Prefetch, 10_000)+maxResults)
	}
	if w.err != nil {
		return w.err
	}
	if w.started.Swap(true) {
		return fmt.Errorf("jobs: worker %q was already started", w.options.Name)
	}
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
	w.work()
	left := make(chan bool)
	for _, c := range w.cells {
		go func() { c.leave(); left <- true }()
	}
	for range w.cells {
		<-left
	}
	var err error
	if w.change(func() { err = w.err }); err != nil {
		w.logFailure(err)
	}
	w.log().Info("worker stopped", "worker", w.options.Name)
	close(w.done)
	w.isReady.Do(func() { close(w.ready) }) // after done, so that the two cases differ
}

// live works for a cell until ctx is done.
func (c *cell) live(ctx context.Context) {
	defer c.change(func() { c.controls-- })
	err := c.meet(c.stopping)
	if err == nil {
		err = c.beat(c.stopping)
	}
	if c.stopping.Err() != nil {
		return
	} else if err != nil {
		c.failIf(err)
		return
	}
	c.log().Info("worker started", c.described()...)
	c.isReady.Do(func() { close(c.ready) })
	c.change(func() { c.fetches++; c.isIdle = true })
	go c.fetchLoop()
	for ctx.Err() == nil {
		_ = c.control.wait(ctx, "CALL jobs.wait_any('{}', $1, worker => $2)", interval(c.pace()), c.options.Name)
		if err := c.beat(ctx); err != nil && ctx.Err() == nil {
			c.control.failed(ctx, "heartbeat", err)
		}
	}
}

// leave has the server forget the worker, and ends the connections.
func (c *cell) leave() {
	if c.control.hasWorked.Load() { // the server knows the worker
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, _ = try(ctx, ctx, c.finishing, database.Value[bool], "SELECT jobs.worker_leave($1)", []any{c.options.Name})
		cancel()
	}
	for _, link := range []*link{c.fetching, c.finishing, c.control} {
		go link.close()
	}
}

// described are the fields of a log line about the worker.
func (c *cell) described() []any {
	kinds := strings.Join(c.kinds, ", ")
	if c.handlers[others] != nil {
		kinds = "all kinds"
	}
	return []any{"worker", c.options.Name, "queues", strings.Join(c.queues, ", "), "kinds", kinds,
		"concurrency", c.options.Concurrency, "database", c.server.Database, "user", c.server.User,
		"host", c.server.Host, "extension", c.server.Version, "library", Version}
}

// work fetches, renews and finishes jobs until the worker has stopped.
func (w *Worker) work() {
	working, end := context.WithCancel(context.Background())
	w.controls = len(w.cells)
	for _, c := range w.cells {
		go c.live(working)
		go c.finishLoop(working)
	}
	go func() {
		for w.await(w.stopping, func() bool { batches, _ := w.next(); return len(batches) > 0 }) {
			w.startWaiting()
		}
	}()
	<-w.stopping.Done()
	w.releaseWaiting()
	isDone := func() bool { return w.fetches == 0 && len(w.running) == 0 }
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
	w.awaitFor(10*time.Second, func() bool { return w.fetches == 0 && w.hooks == 0 && len(w.held) == 0 })
	if unsent := len(w.list(w.held)); unsent > 0 {
		w.log().Error("results could not be sent", "worker", w.options.Name, "results", unsent)
		w.change(func() { w.require(false, "results could not be sent: %d", unsent) })
	}
	end()
	w.awaitFor(time.Second, func() bool { return w.controls == 0 })
}

// pace is how long the control connection waits for requests.
func (w *Worker) pace() time.Duration { return min(w.options.Lease/3, 10*time.Second) }

// beat reads the map, sends a beat, renews the leases and obeys the answers. It reads command and
// queues without the mutex, since only beat writes them, and beats do not overlap.
func (c *cell) beat(ctx context.Context) error {
	found, err := query(ctx, c.control, database.JSON[*seen], seeCells)
	if err == nil {
		err = c.see(found[0])
	}
	if err != nil {
		return err
	}
	commands, err := query(ctx, c.control, database.Value[string], "SELECT jobs.worker_beat($1, $2, $3, $4::jsonb || $5)",
		c.options.Name, array(c.queues), c.options.Concurrency, library, string(c.info))
	if err != nil {
		return err
	}
	if command := commands[0]; command != c.command {
		c.log().Info("operator command received", "worker", c.options.Name, "command", command)
		c.change(func() { c.command = command })
	}
	if c.command == "stop" {
		c.stop()
	}
	c.releaseWaiting()
	ids, tokens := []int64{}, []int64{}
	held := slices.DeleteFunc(c.list(c.held), func(a *attempt) bool { return a.cell != c })
	for _, a := range held {
		ids, tokens = append(ids, a.row.ID), append(tokens, a.token)
	}
	answers, err := query(ctx, c.control, database.Value[*bool],
		`SELECT cancel_requested FROM generate_series(1, cardinality($1::bigint[]), 10000) n,
		   jobs.heartbeat_many(($1::bigint[])[n:n + 9999], ($2::bigint[])[n:n + 9999])`, array(ids), array(tokens))
	for i, isCancelled := range answers {
		switch a := held[i]; {
		case a.completed.Load():
		case isCancelled == nil && !a.settled.Load(): // else its result is being sent
			c.log().Warn("job lost", a.fields()...)
			c.unqueue(a)
			c.forget(a)
			a.cancel(ErrLost)
		case isCancelled != nil && *isCancelled:
			a.cancel(ErrCancelled)
			c.release(a)
		}
	}
	return err
}

// see notes which of the worker's queues live here. The first time it returns an error if the
// databases of the worker disagree.
func (c *cell) see(s *seen) (err error) {
	queues := slices.DeleteFunc(slices.Clone(c.options.Queues), func(queue string) bool {
		return s.Cell != nil && !slices.Contains(s.placement(queue).Cells, *s.Cell)
	})
	c.change(func() {
		isFirst, isSame := c.seen == nil, slices.Equal(queues, c.queues)
		c.seen, c.queues = s, queues
		if c.rewait != nil && !isSame {
			c.rewait()
		}
		if isFirst {
			var all []*seen
			for _, other := range c.cells {
				all = append(all, other.seen)
			}
			c.control.hasWorked.Store(false) // that does not show that the worker may work
			err = agree(all)
		}
	})
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
