package jobs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/text/unicode/norm"

	"example.org/jobs/internal/database"
)

// Args are the args of a kind of jobs, encoded as JSON. Kind returns the name of the kind, also for
// the zero value.
//
// With a method InsertOpts() [InsertOpts], also for the zero value, they have defaults: for each
// insert whose options do not say otherwise, for [Worker.Sync], and as the handler's timeout.
type Args interface{ Kind() string }

// HandlerOption is an option of a handler.
type HandlerOption func(*handler)

// handler is the handler of a kind, and what the worker knows of its jobs.
type handler struct {
	work        Work
	timeout     time.Duration
	concurrency int
	defaults    InsertOpts

	batching func(context.Context, []*attempt) error // of a handler of batches
	size     int                                     // of a batch
	linger   time.Duration
}

// NoTimeout means no time limit.
const NoTimeout = -time.Second

// Timeout is how long a handler may run, instead of the worker's timeout, or [NoTimeout]. The job's
// deadline applies in any case.
func Timeout(limit time.Duration) HandlerOption { return func(h *handler) { h.timeout = limit } }

// Concurrency is how many jobs of the kind may run at once in this worker.
func Concurrency(limit int) HandlerOption { return func(h *handler) { h.concurrency = limit } }

// Defaults are those of a kind that is given by its name, as the method InsertOpts of [Args].
func Defaults(opts InsertOpts) HandlerOption { return func(h *handler) { h.defaults = opts } }

// Handle sets the handler for jobs whose args have type A. Its result is the output of the job,
// encoded by encoding/json; nil is none. An error or a panic fails the attempt, except the endings
// [Snooze], [Cancel], [Discard] and [RetryIn].
//
// The handler's context is cancelled when it must stop, and [context.Cause] returns the reason:
// [ErrTimeout], [ErrCancelled], [ErrStopping] or [ErrLost]. If the handler then returns an error,
// the reason decides how the attempt ends. If it returns without an error, the job is completed.
//
// Set all handlers before the worker starts. An invalid handler is an error of [Worker.Start].
func Handle[A Args](w *Worker, fn func(context.Context, *Job[A]) (any, error), opts ...HandlerOption) {
	kind, opts := kindOf[A](w, opts)
	HandleKind(w, kind, fn, opts...)
}

// kindOf returns the kind of a type of args, and the options with the defaults of the type.
func kindOf[A Args](w *Worker, opts []HandlerOption) (kind string, _ []HandlerOption) {
	zero := reflect.TypeFor[A]()
	defer func() {
		if value := recover(); value != nil {
			w.require(false, "the kind of %v is unknown: its methods must work for the zero value: %v", zero, value)
		}
		w.require(kind != others, "the kind of %v must not be empty", zero)
	}()
	var args A
	if zero.Kind() == reflect.Pointer {
		args = reflect.New(zero.Elem()).Interface().(A)
	}
	kind = args.Kind()
	return kind, append([]HandlerOption{Defaults(defaultsOf(args))}, opts...)
}

// others is the kind of the handler for every other kind.
const others = ""

// HandleOthers sets the handler for every other kind. The worker then fetches all kinds, so that
// none of them can have a [Concurrency].
func HandleOthers[A any](w *Worker, fn func(context.Context, *Job[A]) (any, error), opts ...HandlerOption) {
	HandleKind(w, others, fn, opts...)
}

// HandleKind is Handle for a named kind and args of any type. With json.RawMessage they are not
// decoded.
func HandleKind[A any](w *Worker, kind string, fn func(context.Context, *Job[A]) (any, error), opts ...HandlerOption) {
	w.handle(kind, &handler{work: func(ctx context.Context, row *JobRow) (output any, err error) {
		defer recovered(&err) // so middleware sees it
		job, err := typed[A](ctx, row)
		if err != nil {
			return nil, err
		}
		return fn(ctx, job)
	}}, opts)
}

// typed returns a job with its args decoded, and with the context that its handler gets.
func typed[A any](ctx context.Context, row *JobRow) (*Job[A], error) {
	row.ctx = ctx
	job := &Job[A]{JobRow: row}
	if err := decode(row.RawArgs, &job.Args); err != nil {
		return nil, fmt.Errorf("the args do not fit the handler's type: %w", err)
	}
	return job, nil
}

// handle sets the handler of a kind.
func (w *Worker) handle(kind string, h *handler, opts []HandlerOption) {
	const unset = time.Duration(math.MinInt64)
	kind = norm.NFC.String(kind) // as the database stores it
	h.work, h.timeout, h.concurrency = around(w.options.Around, h.work), unset, math.MaxInt
	for _, option := range opts {
		option(h)
	}
	if h.batching == nil {
		h.size, h.linger = 1, 0
	}
	if h.timeout == unset {
		h.timeout = cmp.Or(h.defaults.Timeout, w.options.Timeout)
	}
	if kind != others {
		w.requireName("a kind", kind)
	}
	w.require(w.handlers[kind] == nil, "kind %q already has a handler", kind)
	w.require(h.timeout > 0 || h.timeout == NoTimeout, "the timeout of kind %q must be positive, or NoTimeout, not %v", kind, h.timeout)
	w.require(h.concurrency > 0, "the concurrency of kind %q must be at least 1, not %d", kind, h.concurrency)
	w.require(h.size > 0, "the size of the batches of kind %q must be at least 1, not %d", kind, h.size)
	w.require(h.linger >= 0, "the linger of kind %q must be at least 0, not %v", kind, h.linger)
	if h.timeout < 0 {
		h.timeout = math.MaxInt64
	}
	h.size = min(h.size, h.concurrency, w.options.Concurrency) // more cannot come while it lingers
	w.handlers[kind], w.kinds = h, append(w.kinds, kind)
}

// around wraps a function in middleware, the first outermost.
func around[F any](middleware []func(F) F, inner F) F {
	for i := len(middleware) - 1; i >= 0; i-- {
		inner = middleware[i](inner)
	}
	return inner
}

// handler returns the handler of a kind.
func (w *Worker) handler(kind string) *handler {
	return cmp.Or(w.handlers[kind], w.handlers[others])
}

// decode reads JSON and keeps numbers exact.
func decode(encoded []byte, value any) error {
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.UseNumber()
	return decoder.Decode(value)
}

// ErrTimeout means that the attempt exceeded its timeout. The attempt has failed, whatever the
// handler returns.
var ErrTimeout error = named{name: "timeout", text: "the attempt ran longer than its timeout"}

// ErrCancelled means that the job was cancelled.
var ErrCancelled error = named{name: "cancelled", text: "the job was cancelled"}

// ErrStopping means that the worker is stopping. Another worker gets the job, and the attempt does
// not count.
var ErrStopping error = named{name: "stopping", text: "the worker is stopping"}

// ErrLost means that another worker owns the job now, or that it no longer exists. The handler's
// result is discarded.
var ErrLost error = named{name: "lost", text: "the job was lost"}

// Job is the job that a handler gets, with args of type A.
type Job[A any] struct {
	*JobRow
	// Args are decoded by encoding/json. In an any, numbers become json.Number, which is exact.
	Args A
}

// JobRow is a job without typed args, as middleware gets it. Its times other than the deadline are
// by the server's clock.
type JobRow struct {
	ID          int64           // a good idempotency key
	Kind        string          // selects the handler
	Queue       string          // that it was fetched from
	RawArgs     json.RawMessage // the args as JSON
	Meta        map[string]any  // metadata
	Tags        []string        // labels to find it by
	Priority    int             // lower numbers go first
	Attempt     int             // the number of this attempt, from 1
	MaxAttempts int             // failed attempts until it is discarded
	CreatedAt   time.Time       // when it was inserted
	ScheduledAt time.Time       // when it was due
	AttemptedAt time.Time       // when this attempt started
	// Deadline is when the server ends this attempt, by this machine's clock; zero is never. The
	// handler is cancelled somewhat earlier.
	Deadline time.Time

	ctx     context.Context // the handler's
	attempt *attempt
}

// Progress stores any JSON, which jobs.jobs shows, and renews the job's lease. It returns ErrLost,
// and the handler is cancelled, if the job is lost. It also returns ErrLost after the worker has
// stopped without waiting for the handler.
func (j *JobRow) Progress(ctx context.Context, progress any) error {
	encoded, err := json.Marshal(progress)
	if err != nil || j.attempt == nil || j.attempt.cell == nil {
		return err
	}
	const call = "SELECT cancel_requested FROM jobs.heartbeat($1, $2, progress => $3)"
	isCancelled, err := query(ctx, j.attempt.cell.finishing, database.Value[bool], call, j.ID, j.attempt.token, string(encoded))
	switch state := sqlState(err); {
	case j.attempt.completed.Load():
	case state == "55000" || state == "P0002":
		j.attempt.cancel(ErrLost)
		return ErrLost
	case err == nil && isCancelled[0]:
		j.attempt.cancel(ErrCancelled)
	}
	return err
}

// Complete completes the job with this output within a transaction of the handler, so that its
// writes and the completion are atomic.
//
// Commit next and return: the worker sends nothing more. If Complete returns an error, roll back
// and return the error.
func (j *JobRow) Complete(ctx context.Context, tx DB, output any) error {
	encoded, err := json.Marshal(output)
	if err != nil || j.attempt == nil {
		return err
	}
	// Set before the call: a heartbeat must not take the job for lost once this is committed.
	j.attempt.completed.Store(true)
	const call = "SELECT jobs.complete($1, $2, nullif($3::jsonb, 'null'))"
	err = database.Advise(database.Exec(ctx, tx, call, j.ID, j.attempt.token, string(encoded)), "grant_worker", tx)
	j.attempt.completed.Store(err == nil)
	return err
}

// attempt is one attempt of a job that this worker holds.
type attempt struct {
	row       *JobRow
	token     int64
	came      time.Time       // when it was fetched
	until     time.Time       // when it is to be ended, before the server does; zero is never
	timer     *time.Timer     // gives it back if it gets no place, then ends it
	ctx       context.Context // of the handler, or of the middleware around it
	cancelCtx context.CancelCauseFunc
	settled   atomic.Bool // what becomes of it is decided; what comes later does not count
	completed atomic.Bool // by Complete, in a transaction that may be under way
	result    string      // what is to be sent, as JSON
	failure   error       // if that is a failure
	failures  int         // how often it was sent in vain
	cell      *cell       // none in a test

	batch   *batch        // of a handler of batches
	job     any           // what it gets: the *Job
	endOnce sync.Once     // when it ends the job
	ended   chan struct{} // is closed then
	output  any
	err     error
}

// newAttempt returns the attempt of a job.
func newAttempt(ctx context.Context, row *JobRow) *attempt {
	a := &attempt{row: row, came: time.Now(), ended: make(chan struct{})}
	a.ctx, a.cancelCtx = context.WithCancelCause(ctx)
	row.attempt = a
	return a
}

// fields are the fields of a log line about an attempt, and more.
func (a *attempt) fields(more ...any) []any {
	return append([]any{"job", a.row.ID, "kind", a.row.Kind, "attempt", a.row.Attempt}, more...)
}

// failedFields are the fields of a log line about a failed attempt.
func (a *attempt) failedFields(failure error) []any {
	fields := a.fields("max_attempts", a.row.MaxAttempts, "type", ErrorType(failure), "error", storable(fmt.Sprint(failure)))
	if trace := traceOf(failure); trace != "" {
		fields = append(fields, "trace", trace)
	}
	return fields
}

func (a *attempt) cancel(reason error) { a.cancelCtx(reason) }

// reason returns why the attempt was cancelled, or nil.
func (a *attempt) reason() error {
	if cause := (named{}); errors.As(context.Cause(a.ctx), &cause) {
		return cause
	}
	return nil
}

// expire fails the attempt, even if its handler continues.
func (a *attempt) expire() {
	// A handler that completes its job in a transaction has it locked, and the call would wait.
	for a.completed.Load() && !a.settled.Load() {
		time.Sleep(time.Second)
	}
	if a.reason() != ErrLost && !a.settled.Swap(true) {
		a.cancel(ErrTimeout)
		a.send(a.fail(ErrTimeout))
	}
}

// tell sends the result of an attempt, unless one was sent; "" is no result.
func (a *attempt) tell(result string, failure error) {
	if !a.settled.Swap(true) {
		a.send(result, failure)
	}
}

func (a *attempt) send(result string, failure error) {
	if failure != nil {
		a.cell.failed(a, failure)
	}
	if result != "" {
		a.result = result
		a.cell.results <- a
	} else {
		a.cell.forget(a)
	}
}

// failed logs a failed attempt and calls the hook.
func (w *Worker) failed(a *attempt, failure error) {
	a.failure = failure
	w.log().Warn("attempt failed", a.failedFields(failure)...)
	w.hook(w.options.OnError, a, failure)
}

// hook calls a hook in its own goroutine. Its panic ends nothing.
func (w *Worker) hook(hook func(*JobRow, error), a *attempt, failure error) {
	if hook == nil {
		return
	}
	w.change(func() { w.hooks++ })
	go func() {
		defer w.change(func() { w.hooks-- })
		defer func() {
			if value := recover(); value != nil {
				w.log().Error("hook failed", a.fields("error", storable(fmt.Sprint(value)))...)
			}
		}()
		hook(a.row, failure)
	}()
}
