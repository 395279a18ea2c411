package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"
)

// Args are the args of a kind of jobs, encoded as JSON. Kind returns the name of the kind, also for
// the zero value.
type Args interface{ Kind() string }

// HandlerOption is an option of a handler.
type HandlerOption func(*handler)

type handler struct {
	work    Work
	timeout time.Duration
}

// NoTimeout means no time limit.
const NoTimeout = -time.Second

// Timeout is how long a handler may run, instead of the worker's timeout, or [NoTimeout]. The job's
// deadline applies in any case.
func Timeout(limit time.Duration) HandlerOption { return func(h *handler) { h.timeout = limit } }

// Handle sets the handler for jobs whose args have type A. Its result is the output of the job,
// encoded by encoding/json; nil is none. An error or a panic fails the attempt, except the endings
// [Snooze], [Cancel], [Discard] and [RetryIn].
//
// The handler's context is cancelled when it must stop; [JobRow.CancelledBecause] returns the
// reason. If the handler then returns an error, the reason decides how the attempt ends. If it
// returns without an error, the job is completed.
//
// Set all handlers before the worker starts. An invalid handler is an error of [Worker.Start].
func Handle[A Args](w *Worker, fn func(context.Context, *Job[A]) (any, error), opts ...HandlerOption) {
	var args A
	w.require(args.Kind() != others, "the kind of %T must not be empty", args)
	HandleKind(w, args.Kind(), fn, opts...)
}

// others is the kind of the handler for every other kind.
const others = ""

// HandleOthers sets the handler for every other kind.
func HandleOthers[A any](w *Worker, fn func(context.Context, *Job[A]) (any, error), opts ...HandlerOption) {
	HandleKind(w, others, fn, opts...)
}

// HandleKind is Handle for a named kind and args of any type. With json.RawMessage they are not
// decoded.
func HandleKind[A any](w *Worker, kind string, fn func(context.Context, *Job[A]) (any, error), opts ...HandlerOption) {
	work := func(ctx context.Context, row *JobRow) (output any, err error) {
		defer recovered(&err) // so middleware sees it
		job := &Job[A]{JobRow: row}
		if err := decode(row.RawArgs, &job.Args); err != nil {
			return nil, fmt.Errorf("the args do not fit the handler's type: %w", err)
		}
		return fn(ctx, job)
	}
	h := handler{around(w.options.Around, work), w.options.Timeout}
	for _, option := range opts {
		option(&h)
	}
	w.require(w.handlers[kind].work == nil, "kind %q already has a handler", kind)
	w.require(h.timeout > 0 || h.timeout == NoTimeout, "the timeout of kind %q must be positive, or NoTimeout, not %v", kind, h.timeout)
	if h.timeout < 0 {
		h.timeout = 1<<63 - 1 // the longest there is
	}
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
func (w *Worker) handler(kind string) handler {
	h := w.handlers[kind]
	orDefault(&h, w.handlers[others])
	return h
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

	attempt *attempt
}

// Progress stores any JSON, which jobs.jobs shows, and renews the job's lease. It returns ErrLost,
// and the handler is cancelled, if the job is lost. It also returns ErrLost after the worker has
// stopped without waiting for the handler.
func (j *JobRow) Progress(ctx context.Context, progress any) error {
	encoded, err := json.Marshal(progress)
	if err != nil || j.attempt == nil || j.attempt.worker == nil {
		return err
	}
	const call = "SELECT cancel_requested FROM jobs.heartbeat($1, $2, progress => $3)"
	isCancelled, err := query(ctx, j.attempt.worker.finishing, value[bool], call, j.ID, j.attempt.token, string(encoded))
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
	_, err = tx.ExecContext(ctx, call, j.ID, j.attempt.token, string(encoded))
	j.attempt.completed.Store(err == nil)
	return err
}

// CancelledBecause returns why the handler's context was cancelled: ErrTimeout, ErrCancelled,
// ErrStopping or ErrLost. It is nil if the context is not cancelled.
func (j *JobRow) CancelledBecause() (reason error) {
	if j.attempt != nil {
		reason, _ = j.attempt.reason.Load().(error)
	}
	return reason
}

// attempt is one attempt of a job that this worker holds.
type attempt struct {
	row       *JobRow
	token     int64
	limit     time.Duration   // after which it is to be ended, before the server does
	ctx       context.Context // the handler's
	cancelCtx context.CancelFunc
	reason    atomic.Value // an error: why ctx was cancelled
	settled   atomic.Bool  // what becomes of it is decided; what comes later does not count
	completed atomic.Bool  // by Complete, in a transaction that may be under way
	result    string       // what is to be sent, as JSON
	failures  int          // how often it was sent in vain
	worker    *Worker      // none in a test
}

// fields are the fields of a log line about an attempt, and more.
func (a *attempt) fields(more ...any) []any {
	return append([]any{"job", a.row.ID, "kind", a.row.Kind, "attempt", a.row.Attempt}, more...)
}

func (a *attempt) cancel(reason error) { a.reason.CompareAndSwap(nil, reason); a.cancelCtx() }

// tell sends the result of an attempt, unless one was sent; "" is no result.
func (a *attempt) tell(result string, failure error) {
	w, isFirst := a.worker, !a.settled.Swap(true)
	if isFirst && failure != nil {
		w.options.Log.Warn("attempt failed", a.fields("error", storable(fmt.Sprint(failure)))...)
	}
	if isFirst && result != "" {
		a.result = result
		w.results <- a
	} else if isFirst {
		w.forget(a)
	}
}
