package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"
)

// Args are the args of jobs of one kind, to be written as JSON. Kind is the name of that kind; it
// must be the same for the zero value.
type Args interface{ Kind() string }

// HandlerOption says more about a handler.
type HandlerOption func(*handler)

type handler struct {
	work    Work
	timeout time.Duration
}

// NoTimeout is the timeout that is no limit.
const NoTimeout = -time.Second

// Timeout is how long a handler may run, instead of the worker's timeout; it can be [NoTimeout].
// The deadline of the job ends it in any case.
func Timeout(limit time.Duration) HandlerOption { return func(h *handler) { h.timeout = limit } }

// Handle gives the worker the handler for jobs whose args are of type A. What it returns is the
// output of the job, of anything that encoding/json writes; nil is none. An error or a panic fails
// the attempt, but for the endings [Snooze], [Cancel], [Discard] and [RetryIn].
//
// The context of the handler ends when it is to stop; [JobRow.CancelledBecause] says why. A handler
// that returns its error then ends as that reason has it. One that returns without an error has
// completed its job all the same.
//
// All handlers are given before the worker starts. One that cannot be is an error of the start.
func Handle[A Args](w *Worker, fn func(context.Context, *Job[A]) (any, error), opts ...HandlerOption) {
	var args A
	w.require(args.Kind() != others, "the kind of %T is empty", args)
	HandleKind(w, args.Kind(), fn, opts...)
}

// others is the kind of the handler for all kinds that have none of their own.
const others = ""

// HandleOthers gives the worker the handler for all kinds that have none of their own.
func HandleOthers[A any](w *Worker, fn func(context.Context, *Job[A]) (any, error), opts ...HandlerOption) {
	HandleKind(w, others, fn, opts...)
}

// HandleKind is as Handle, for args of any type. With json.RawMessage they are not decoded.
func HandleKind[A any](w *Worker, kind string, fn func(context.Context, *Job[A]) (any, error), opts ...HandlerOption) {
	work := func(ctx context.Context, row *JobRow) (output any, err error) {
		defer recovered(&err) // so middleware sees it
		job := &Job[A]{JobRow: row}
		if err := decode(row.RawArgs, &job.Args); err != nil {
			return nil, fmt.Errorf("the args of the job are not as the handler expects them: %w", err)
		}
		return fn(ctx, job)
	}
	h := handler{around(w.options.Around, work), w.options.Timeout}
	for _, option := range opts {
		option(&h)
	}
	w.require(w.handlers[kind].work == nil, "kind %q has a handler already", kind)
	w.require(h.timeout > 0 || h.timeout == NoTimeout, "Timeout of kind %q is %v: positive, or NoTimeout", kind, h.timeout)
	if h.timeout < 0 {
		h.timeout = 1<<63 - 1 // the longest there is
	}
	w.handlers[kind], w.kinds = h, append(w.kinds, kind)
}

// around is a function with middleware around it, the first one outermost.
func around[F any](middleware []func(F) F, inner F) F {
	for i := len(middleware) - 1; i >= 0; i-- {
		inner = middleware[i](inner)
	}
	return inner
}

// handler is the one for a kind.
func (w *Worker) handler(kind string) handler {
	h := w.handlers[kind]
	orDefault(&h, w.handlers[others])
	return h
}

// decode reads JSON, and keeps numbers exact.
func decode(encoded []byte, value any) error {
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.UseNumber()
	return decoder.Decode(value)
}

// ErrTimeout is why a handler was cancelled whose attempt took too long. The attempt has failed
// already, whatever the handler returns.
var ErrTimeout error = named{name: "timeout", text: "the attempt ran longer than its timeout"}

// ErrCancelled is why a handler was cancelled whose job somebody has cancelled.
var ErrCancelled error = named{name: "cancelled", text: "the job was cancelled"}

// ErrStopping is why a handler was cancelled whose worker stops. Another one gets the job, and the
// attempt does not count.
var ErrStopping error = named{name: "stopping", text: "the worker stops"}

// ErrLost is why a handler was cancelled whose job is somebody else's by now, or gone. What the
// handler returns is dropped.
var ErrLost error = named{name: "lost", text: "the job was lost"}

// Job is what a handler gets: a job whose args are of type A.
type Job[A any] struct {
	*JobRow
	// Args are decoded by encoding/json. Where A has an any, numbers become json.Number: exact.
	Args A
}

// JobRow is a job whatever its args, as middleware gets it. Its times, but for the deadline, are by
// the clock of the server.
type JobRow struct {
	ID          int64           // a good idempotency key
	Kind        string          // what the job is about
	Queue       string          // from which it was fetched
	RawArgs     json.RawMessage // the args as JSON
	Meta        map[string]any  // what was said beside the args
	Tags        []string        // words to find it by
	Priority    int             // the lower number goes first
	Attempt     int             // the number of this attempt, from 1
	MaxAttempts int             // after so many it is discarded
	CreatedAt   time.Time       // when it was inserted
	ScheduledAt time.Time       // when it was to run
	AttemptedAt time.Time       // when this attempt began
	// Deadline is when the server ends this attempt, by the clock of this program; zero is never.
	// The handler is cancelled somewhat earlier.
	Deadline time.Time

	attempt *attempt
}

// Progress stores any JSON, which jobs.jobs shows, and renews the lease of the job. It returns
// ErrLost where the job is somebody else's by now; the handler is cancelled then. So it does after
// the end of the worker, where the handler was left behind.
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

// Complete completes the job within a transaction of the handler, with this output. So the end of
// the job and what the handler writes in the transaction come true together, or neither does.
//
// Commit next, and return: the worker sends nothing more. An error
// of Complete belongs to the transaction: roll back, and return it.
func (j *JobRow) Complete(ctx context.Context, tx DB, output any) error {
	encoded, err := json.Marshal(output)
	if err != nil || j.attempt == nil {
		return err
	}
	// Before the call: a heartbeat must not take the job for lost once this is committed.
	j.attempt.completed.Store(true)
	const call = "SELECT jobs.complete($1, $2, nullif($3::jsonb, 'null'))"
	_, err = tx.ExecContext(ctx, call, j.ID, j.attempt.token, string(encoded))
	j.attempt.completed.Store(err == nil)
	return err
}

// CancelledBecause says why the context of the handler was cancelled: ErrTimeout, ErrCancelled,
// ErrStopping or ErrLost. While it is not cancelled, it is nil.
func (j *JobRow) CancelledBecause() (reason error) {
	if j.attempt != nil {
		reason, _ = j.attempt.reason.Load().(error)
	}
	return reason
}

// attempt is one attempt of a job, which this program holds.
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

// fields are what a log says of an attempt, and more.
func (a *attempt) fields(more ...any) []any {
	return append([]any{"job", a.row.ID, "kind", a.row.Kind, "attempt", a.row.Attempt}, more...)
}

func (a *attempt) cancel(reason error) { a.reason.CompareAndSwap(nil, reason); a.cancelCtx() }

// tell tells the server what became of an attempt, unless that was told; "" is nothing to tell.
func (a *attempt) tell(result string, failure error) {
	w, isFirst := a.worker, !a.settled.Swap(true)
	if isFirst && failure != nil {
		w.options.Log.Warn("an attempt has failed", a.fields("error", storable(fmt.Sprint(failure)))...)
	}
	if isFirst && result != "" {
		a.result = result
		w.results <- a
	} else if isFirst {
		w.forget(a)
	}
}
