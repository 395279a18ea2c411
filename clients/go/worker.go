package jobs

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
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
	Weights map[string]int
	// Concurrency is the most handlers that run at a time. Default: 10.
	Concurrency int
	// Timeout is how long a handler may run; that of a kind goes first. Default: no limit but the
	// job's own.
	Timeout time.Duration
	// Lease is how long a dead worker goes unnoticed. Default: 30 s.
	Lease time.Duration
	// Grace is how long handlers may go on after a stop. Default: 10 s; negative: not at all.
	Grace time.Duration
	// Name is that of the worker in jobs.workers. Default: host, process id and a random number.
	Name string
	// Info is shown in jobs.workers; the library adds its name and version.
	Info map[string]any
	// Around is middleware: a function around every handler, the first one outermost.
	Around []func(next Work) Work
	// Log is what the worker logs to, such as a *slog.Logger. Default: the standard logger.
	Log Logger
}

// Work runs a job, in middleware. The error can be one of the endings, such as Snooze.
type Work func(ctx context.Context, job *JobRow) (output any, err error)

// Worker fetches jobs and runs their handlers. It has three connections, however many jobs it runs.
type Worker struct {
	options   Options
	queues    string // as an argument of a call
	info      []byte
	handlers  map[string]*handler
	otherwise *handler

	fetching, finishing, control *link

	// Each flag raises those after it: cancel what runs; give it the grace period; fetch no more.
	hurry, asked, quit flag
	ready, done        chan struct{}
	changed, unsent    chan struct{} // wake who fetches and who finishes
	handling           sync.WaitGroup

	mu      sync.Mutex
	started bool
	command string                // of an operator: run, quiet or stop
	running map[string]int        // the places that are taken, by queue
	held    map[*attempt]struct{} // of which the server has not had the result
	results []*outgoing
	closing bool // nothing will be added to results
	dropped int  // results that the server would not take
	err     error
}

// NewWorker is a worker that takes its three connections from db for as long as it runs. So db must
// allow for more than three, as the handlers need theirs as well.
func NewWorker(db *sql.DB, options Options) *Worker {
	w := &Worker{
		handlers: map[string]*handler{}, command: "run",
		ready: make(chan struct{}), done: make(chan struct{}),
		changed: make(chan struct{}, 1), unsent: make(chan struct{}, 1),
		running: map[string]int{}, held: map[*attempt]struct{}{},
	}
	if len(options.Queues) == 0 {
		options.Queues = []string{"default"}
	}
	orDefault(&options.Concurrency, 10)
	orDefault(&options.Lease, 30*time.Second)
	orDefault(&options.Grace, 10*time.Second)
	if options.Grace < 0 {
		options.Grace = 0
	}
	if options.Name == "" {
		host, _ := os.Hostname()
		random := make([]byte, 4)
		_, _ = rand.Read(random)
		options.Name = fmt.Sprintf("%.80s:%d:%x", host, os.Getpid(), random)
	}
	if options.Log == nil {
		options.Log = standardLogger{}
	}
	info := object{"library": "postgres-jobs for Go", "version": Version}
	for name, value := range options.Info {
		info[name] = value
	}
	w.info, w.err = encode(info)
	if limit := db.Stats().MaxOpenConnections; limit > 0 && limit <= 3 {
		w.err = fmt.Errorf("jobs: a worker takes three connections, and db has only %d", limit)
	}
	w.options, w.queues = options, array(options.Queues)
	w.fetching = newLink(db, options.Log, "fetch")
	w.finishing = newLink(db, options.Log, "finish")
	w.control = newLink(db, options.Log, "control")
	w.hurry = newFlag(context.Background())
	w.asked = newFlag(w.hurry)
	w.quit = newFlag(w.asked)
	return w
}

func orDefault[T int | time.Duration](value *T, otherwise T) {
	if *value == 0 {
		*value = otherwise
	}
}

// Run works until SIGTERM or SIGINT, until ctx is done, or until an operator stops the worker. Then
// it stops as Stop does; a second signal is as StopAndCancel. The error is nil if nothing was lost.
func (w *Worker) Run(ctx context.Context) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)
	if err := w.Start(); err != nil {
		return err
	}
	cancelled := ctx.Done()
	for {
		select {
		case <-signals:
			if w.asked.isRaised() {
				w.hurry.raise()
			}
			w.asked.raise()
		case <-cancelled:
			cancelled = nil
			w.asked.raise()
		case <-w.done:
			return w.err
		}
	}
}

// Start begins to work and returns. A worker that cannot connect tries on until it can. Signals
// are left to the program. A worker is started once.
func (w *Worker) Start() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.err != nil:
		return w.err
	case w.started:
		return errors.New("jobs: a worker is started once")
	case len(w.handlers) == 0 && w.otherwise == nil:
		return errors.New("jobs: the worker has no handlers")
	}
	w.started = true
	go w.live()
	return nil
}

// Ready is closed when the server knows the worker.
func (w *Worker) Ready() <-chan struct{} { return w.ready }

// Done is closed when the worker has ended: after a stop, also that of an operator.
func (w *Worker) Done() <-chan struct{} { return w.done }

// Stop ends the worker, and returns when it has ended. It fetches no more. Handlers have the grace
// period, then they are cancelled and their jobs released. The error is nil if nothing was lost.
func (w *Worker) Stop() error { return w.stop(w.asked) }

// StopAndCancel ends the worker without a grace period.
func (w *Worker) StopAndCancel() error { return w.stop(w.hurry) }

func (w *Worker) stop(how flag) error {
	how.raise()
	w.mu.Lock()
	started := w.started
	w.mu.Unlock()
	if started {
		<-w.done
	}
	return w.err
}

// live is the worker's whole life.
func (w *Worker) live() {
	defer close(w.done)
	defer func() {
		for _, link := range []*link{w.fetching, w.finishing, w.control} {
			link.close()
		}
	}()
	if err := w.beat(w.quit); err != nil || w.quit.isRaised() {
		if !w.quit.isRaised() {
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
	w.awaitHandlers(idle)
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	wake(w.unsent)
	isClosedWithin(sent, w.options.Grace+time.Second)
	end()
	isClosedWithin(sent, time.Second)
	isClosedWithin(controlled, time.Second)
	w.mu.Lock()
	defer w.mu.Unlock()
	if lost := len(w.results) + w.dropped; lost > 0 {
		w.err = fmt.Errorf("jobs: %d results could not be sent", lost)
	}
}

// awaitHandlers returns when no handler runs, or when it need not be waited for.
func (w *Worker) awaitHandlers(idle <-chan struct{}) {
	select {
	case <-idle:
		return
	case <-w.asked.Done():
	}
	select {
	case <-idle:
		return
	case <-time.After(w.options.Grace):
	case <-w.hurry.Done():
	}
	for _, a := range w.attempts() {
		a.cancel(ErrStopping)
	}
	if isClosedWithin(idle, time.Second) {
		return
	}
	for _, a := range w.attempts() {
		if !a.completed.Load() && a.settle() { // else its transaction has the job
			w.options.Log.Warn("a handler does not end and is left behind", "job", a.row.ID)
			w.send(a, a.result("release"))
		}
	}
}

// attempts are those that are held.
func (w *Worker) attempts() []*attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	attempts := make([]*attempt, 0, len(w.held))
	for a := range w.held {
		attempts = append(attempts, a)
	}
	return attempts
}

// flag is raised once, and stays so.
type flag struct {
	context.Context
	raise context.CancelFunc
}

func newFlag(raisedBy context.Context) flag {
	ctx, raise := context.WithCancel(raisedBy)
	return flag{ctx, raise}
}

func (f flag) isRaised() bool { return f.Err() != nil }

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

// wake wakes who waits for a channel of one place.
func wake(channel chan struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}
