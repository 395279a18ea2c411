package jobs

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
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
	// Info is shown in jobs.workers; the library adds its name and version to it.
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
	db        *sql.DB
	options   Options
	invalid   error // what is wrong with the options
	queues    string
	handlers  map[string]*handler
	otherwise *handler

	fetching, finishing, control *link

	// Each flag raises those after it: cancel what runs; give it the grace period; fetch no more.
	hurry, asked, quit flag
	ready, done        chan struct{}
	// changed and unsent wake who fetches and who finishes.
	changed, unsent chan struct{}
	handling        sync.WaitGroup

	mu      sync.Mutex
	started bool
	command string // of an operator: run, quiet or stop
	// running counts the places that are taken, by queue.
	running map[string]int
	// held are the attempts of which the server has not had the result.
	held map[*attempt]struct{}
	// results are to be sent.
	results []*outgoing
	closing bool // nothing will be added to results
	dropped int  // results that the server would not take
	err     error
}

// NewWorker is a worker that takes its three connections from db for as long as it runs. So db must
// allow for more than three, as the handlers need theirs as well.
func NewWorker(db *sql.DB, options Options) *Worker {
	w := &Worker{
		db: db, handlers: map[string]*handler{}, command: "run",
		ready: make(chan struct{}), done: make(chan struct{}),
		changed: make(chan struct{}, 1), unsent: make(chan struct{}, 1),
		running: map[string]int{}, held: map[*attempt]struct{}{},
	}
	w.invalid = options.complete()
	w.options = options
	w.queues = array(options.Queues)
	w.fetching = newLink(db, options.Log, "fetch")
	w.finishing = newLink(db, options.Log, "finish")
	w.control = newLink(db, options.Log, "control")
	w.hurry = newFlag(context.Background())
	w.asked = newFlag(w.hurry)
	w.quit = newFlag(w.asked)
	return w
}

// complete fills in the defaults, and says what is wrong.
func (o *Options) complete() error {
	if len(o.Queues) == 0 {
		o.Queues = []string{"default"}
	}
	switch {
	case o.Concurrency < 0:
		return fmt.Errorf("jobs: Concurrency is %d, at least 1", o.Concurrency)
	case o.Lease < 0:
		return fmt.Errorf("jobs: Lease is %v, it must be positive", o.Lease)
	}
	for queue, weight := range o.Weights {
		if weight < 1 {
			return fmt.Errorf("jobs: the weight of queue %q is %d, at least 1", queue, weight)
		}
	}
	orDefault(&o.Concurrency, 10)
	orDefault(&o.Lease, 30*time.Second)
	orDefault(&o.Grace, 10*time.Second)
	if o.Name == "" {
		host, _ := os.Hostname()
		random := make([]byte, 4)
		_, _ = rand.Read(random)
		o.Name = fmt.Sprintf("%.80s:%d:%x", host, os.Getpid(), random)
	}
	if o.Log == nil {
		o.Log = standardLogger{}
	}
	info := map[string]any{"library": "postgres-jobs for Go", "version": Version}
	for name, value := range o.Info {
		info[name] = value
	}
	o.Info = info
	_, err := json.Marshal(info)
	return err
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
	limit := w.db.Stats().MaxOpenConnections
	switch {
	case w.invalid != nil:
		return w.invalid
	case w.started:
		return errors.New("jobs: a worker is started once")
	case len(w.handlers) == 0 && w.otherwise == nil:
		return errors.New("jobs: the worker has no handlers")
	case limit > 0 && limit <= 3:
		return fmt.Errorf("jobs: the worker takes three connections, and db has only %d", limit)
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
func (w *Worker) Stop() error {
	w.asked.raise()
	return w.wait()
}

// StopAndCancel ends the worker without a grace period.
func (w *Worker) StopAndCancel() error {
	w.hurry.raise()
	return w.wait()
}

func (w *Worker) wait() error {
	w.mu.Lock()
	started := w.started
	w.mu.Unlock()
	if !started {
		return nil
	}
	<-w.done
	return w.err
}

// live is the worker's whole life.
func (w *Worker) live() {
	defer close(w.done)
	err := w.beat(w.quit)
	if w.quit.isRaised() {
		return
	}
	if err != nil {
		w.err = fmt.Errorf("jobs: the server refuses the worker: %w", err)
		return
	}
	close(w.ready)
	controlling, endControl := context.WithCancel(context.Background())
	sending, endSending := context.WithCancel(context.Background())
	controlled := async(func() { w.controlLoop(controlling) })
	sent := async(func() { w.finishLoop(sending) })
	idle := async(func() {
		w.fetchLoop()
		w.handling.Wait()
	})

	w.awaitHandlers(idle)
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	wake(w.unsent)
	if !isClosedWithin(sent, w.options.Grace, time.Second) {
		endSending()
		isClosedWithin(sent, time.Second)
	}
	endSending()
	endControl()
	isClosedWithin(controlled, time.Second)
	for _, link := range []*link{w.fetching, w.finishing, w.control} {
		link.close()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if lost := len(w.results) + w.dropped; lost > 0 {
		w.err = fmt.Errorf("jobs: %d results could not be sent", lost)
	}
}

// awaitHandlers returns when no handler runs, or when it need not be waited for.
func (w *Worker) awaitHandlers(idle <-chan struct{}) {
	var grace <-chan time.Time
	asked := w.asked.Done()
	for waiting := true; waiting; {
		select {
		case <-idle:
			return
		case <-asked:
			asked = nil
			grace = time.After(w.options.Grace)
		case <-grace:
			waiting = false
		case <-w.hurry.Done():
			waiting = false
		}
	}
	for _, a := range w.attempts() {
		a.cancel(ErrStopping)
	}
	if isClosedWithin(idle, time.Second) {
		return
	}
	for _, a := range w.attempts() {
		if a.settle() {
			w.options.Log.Warn("a handler does not end and is left behind", "job", a.id)
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

// isClosedWithin waits for a channel, for as long as the longest of the times.
func isClosedWithin(channel <-chan struct{}, times ...time.Duration) bool {
	var longest time.Duration
	for _, time := range times {
		if time > longest {
			longest = time
		}
	}
	select {
	case <-channel:
		return true
	case <-time.After(longest):
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
