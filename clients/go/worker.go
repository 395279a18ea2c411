package jobs

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Version is that of this library.
const Version = "0.1.0"

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

// Work runs a job, in middleware. The error can be one of the endings, such as Snooze.
type Work func(ctx context.Context, job *JobRow) (output any, err error)

// Worker fetches jobs and runs their handlers. It has three connections, however many jobs it runs.
type Worker struct {
	db       *sql.DB
	options  Options
	queues   string // as an argument of a call
	weights  map[string]float64
	info     []byte
	handlers map[string]handler

	fetching, finishing, control *link

	// Each context ends those after it: cancel what runs; give it the grace period; fetch no more.
	hurry, asked, quit         context.Context
	raiseHurry, ask, raiseQuit context.CancelFunc
	ready, done                chan struct{}
	handling                   sync.WaitGroup

	started   atomic.Bool
	isFailing atomic.Bool // results cannot be sent

	mu      sync.Mutex
	changed *sync.Cond            // tells who fetches and who finishes of changes below, and of quit
	changes int                   // how often these have changed
	command string                // of an operator: run, quiet or stop
	held    map[*attempt]struct{} // whose handler runs, or of which the server has not had the result
	unsent  []*attempt            // whose results are to be sent
	closing bool                  // nothing will be added to these
	err     error
}

// NewWorker is a worker that takes its three connections from db for as long as it runs. So db must
// allow for more than three, as the handlers need theirs as well. Options that cannot be are an
// error of the start.
func NewWorker(db *sql.DB, options Options) *Worker {
	if options.Queues == nil {
		options.Queues = []string{"default"}
	}
	orDefault(&options.Concurrency, 10)
	orDefault(&options.Timeout, NoTimeout)
	orDefault(&options.Lease, 30*time.Second)
	orDefault(&options.Grace, 10*time.Second)
	if options.Name == "" {
		host, _ := os.Hostname()
		random := make([]byte, 4)
		_, _ = rand.Read(random)
		options.Name = fmt.Sprintf("%.80s:%d:%x", host, os.Getpid(), random)
	}
	if options.Log == nil {
		options.Log = standardLogger{}
	}
	w := &Worker{
		db: db, options: options, queues: array(options.Queues), weights: map[string]float64{},
		handlers: map[string]handler{}, command: "run", held: map[*attempt]struct{}{},
		ready: make(chan struct{}), done: make(chan struct{}),
	}
	w.fetching, w.finishing, w.control = newLink(w, "fetch"), newLink(w, "finish"), newLink(w, "control")
	w.changed = sync.NewCond(&w.mu)
	w.hurry, w.raiseHurry = context.WithCancel(context.Background())
	w.asked, w.ask = context.WithCancel(w.hurry)
	w.quit, w.raiseQuit = context.WithCancel(w.asked)
	info := object{"library": "postgres-jobs for Go", "version": Version}
	for name, value := range options.Info {
		info[name] = value
	}
	w.info, w.err = json.Marshal(info)
	w.check(db.Stats().MaxOpenConnections)
	return w
}

func orDefault[T int | time.Duration](value *T, otherwise T) {
	if *value == 0 {
		*value = otherwise
	}
}

// check looks for options that cannot be.
func (w *Worker) check(connections int) {
	o := w.options
	w.require(len(o.Queues) > 0, "Queues is empty")
	for _, queue := range o.Queues {
		w.require(w.weights[queue] == 0, "Queues has %q twice", queue)
		w.weights[queue] = 1
	}
	for queue, weight := range o.Weights {
		w.require(w.weights[queue] > 0, "Weights has %q, which is not in Queues", queue)
		w.require(weight > 0 && weight <= math.MaxFloat64, "Weights has %q with %v: not a positive number", queue, weight)
		w.weights[queue] = weight
	}
	w.require(o.Concurrency > 0, "Concurrency is %d: not at least 1", o.Concurrency)
	w.require(o.Timeout > 0 || o.Timeout == NoTimeout, "Timeout is %v: neither positive nor NoTimeout", o.Timeout)
	w.require(o.Lease > 0, "Lease is %v: not positive", o.Lease)
	w.require(o.Grace >= 0 || o.Grace == NoGrace, "Grace is %v: neither positive nor NoGrace", o.Grace)
	w.require(connections == 0 || connections > 3, "a worker takes three connections, and db has only %d", connections)
}

// require keeps what is wrong until the start, the first of it.
func (w *Worker) require(isRight bool, format string, args ...any) {
	if !isRight && w.err == nil {
		w.err = fmt.Errorf("jobs: "+format, args...)
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
	go func() {
		select {
		case <-signals:
		case <-ctx.Done():
		}
		w.ask()
		<-signals
		w.raiseHurry()
	}()
	<-w.done
	return w.err
}

// Start begins to work and returns. A worker that cannot connect tries on until it can. Signals
// are left to the program. A worker is started once.
func (w *Worker) Start() error {
	w.require(len(w.handlers) > 0, "the worker has no handlers")
	if w.err != nil {
		return w.err
	}
	if w.started.Swap(true) {
		return errors.New("jobs: a worker is started once")
	}
	go w.live()
	return nil
}

// Ready is closed when the server knows the worker.
func (w *Worker) Ready() <-chan struct{} { return w.ready }

// Done is closed when the worker has ended: after a stop, also that of an operator.
func (w *Worker) Done() <-chan struct{} { return w.done }

// Stop ends the worker, and returns when it has ended. It fetches no more. Handlers have the grace
// period, then they are cancelled and their jobs released. The error is nil if nothing was lost.
func (w *Worker) Stop() error { return w.stop(w.ask) }

// StopAndCancel ends the worker without a grace period.
func (w *Worker) StopAndCancel() error { return w.stop(w.raiseHurry) }

func (w *Worker) stop(ask func()) error {
	ask()
	if w.started.Load() {
		<-w.done
	}
	return w.err
}

// live is the worker's whole life.
func (w *Worker) live() {
	defer close(w.done)
	defer w.control.close()
	defer w.finishing.close()
	defer w.fetching.close()
	if err := w.beat(w.quit); err != nil || w.quit.Err() != nil {
		if w.quit.Err() == nil {
			w.err = fmt.Errorf("jobs: the server refuses the worker: %w", err)
		}
		return
	}
	close(w.ready)
	working, end := context.WithCancel(context.Background())
	controlled := async(func() { w.controlLoop(working) })
	sent := async(func() { w.finishLoop(working) })
	idle := async(func() {
		w.fetchLoop()
		w.handling.Wait()
	})
	go func() {
		<-w.quit.Done()
		w.change(func() {})
	}()
	w.awaitHandlers(idle)
	w.change(func() { w.closing = true })
	isClosedWithin(sent, lastChance)
	end()
	isClosedWithin(sent, time.Second)
	isClosedWithin(controlled, time.Second)
	lost := w.attempts(func(a *attempt) bool { return a.settled.Load() && !a.told.Load() })
	if len(lost) > 0 {
		w.err = fmt.Errorf("jobs: %d results could not be sent", len(lost))
	}
}

// lastChance is how long results may still be sent after the last handler has ended.
const lastChance = 10 * time.Second

// awaitHandlers returns when no handler runs, or when it need not be waited for.
func (w *Worker) awaitHandlers(idle <-chan struct{}) {
	select {
	case <-idle:
	case <-w.asked.Done():
		select {
		case <-idle:
		case <-time.After(w.options.Grace):
		case <-w.hurry.Done():
		}
	}
	runs := func(a *attempt) bool { return !a.ended.Load() }
	for _, a := range w.attempts(runs) {
		a.cancel(ErrStopping)
	}
	if isClosedWithin(idle, time.Second) {
		return
	}
	for _, a := range w.attempts(runs) {
		if !a.completed.Load() && a.settle() { // else its transaction has the job
			w.options.Log.Warn("a handler does not end and is left behind", "job", a.row.ID)
			w.send(a, a.encode("release"))
		}
	}
}

// change changes what the mutex guards.
func (w *Worker) change(how func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	how()
	w.changes++
	w.changed.Broadcast()
}

// attempts are those that are held and for which a function is true.
func (w *Worker) attempts(which func(*attempt) bool) (attempts []*attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for a := range w.held {
		if which(a) {
			attempts = append(attempts, a)
		}
	}
	return attempts
}

// async calls a function, and closes the channel when that has returned.
func async(call func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	return done
}

func isClosedWithin(channel <-chan struct{}, limit time.Duration) bool {
	select {
	case <-channel:
		return true
	case <-time.After(limit):
		return false
	}
}
