package jobs

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"
)

// Why a handler was cancelled, as [JobRow.CancelledBecause] tells it.
var (
	// ErrTimeout: the attempt took too long. It has failed already, whatever the handler returns.
	ErrTimeout = errors.New("the attempt took longer than its timeout")
	// ErrCancelled: somebody cancelled the job.
	ErrCancelled = errors.New("the job was cancelled")
	// ErrStopping: the worker stops. Another one gets the job, and the attempt does not count.
	ErrStopping = errors.New("the worker stops")
	// ErrLost: the job is somebody else's by now, or gone. What the handler returns is dropped.
	ErrLost = errors.New("the job was lost")
)

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

// Progress stores a value of any JSON, which jobs.jobs shows, and renews the lease of the job. It
// returns ErrLost where the job is somebody else's by now; the handler is cancelled then.
func (j *JobRow) Progress(ctx context.Context, value any) error {
	encoded, err := json.Marshal(value)
	if err != nil || j.attempt == nil {
		return err
	}
	const call = "SELECT cancel_requested FROM jobs.heartbeat($1, $2, progress => $3)"
	var isCancelled bool
	err = j.attempt.value(ctx, &isCancelled, call, j.ID, j.attempt.token, string(encoded))
	if state := sqlState(err); state == "55000" || state == "P0002" {
		j.attempt.cancel(ErrLost)
		return j.CancelledBecause()
	}
	if isCancelled {
		j.attempt.cancel(ErrCancelled)
	}
	return err
}

// Complete completes the job within a transaction of the handler, with this output. So the end of
// the job and what the handler writes in the transaction come true together, or neither does.
//
// Commit next, and return: the worker sends nothing more, and it renews the lease no more. An error
// of Complete belongs to the transaction: roll back, and return it.
func (j *JobRow) Complete(ctx context.Context, tx DB, output any) error {
	encoded, err := json.Marshal(output)
	if err != nil || j.attempt == nil {
		return err
	}
	// Before the call: a heartbeat must not take the job for lost once this is committed.
	j.attempt.completed.Store(true)
	const call = "SELECT jobs.complete($1, $2, nullif($3::jsonb, 'null'))"
	if _, err = tx.ExecContext(ctx, call, j.ID, j.attempt.token, string(encoded)); err != nil {
		j.attempt.completed.Store(false)
	}
	return err
}

// CancelledBecause says why the context of the handler was cancelled: ErrTimeout, ErrCancelled,
// ErrStopping or ErrLost. While it is not cancelled, it is nil.
func (j *JobRow) CancelledBecause() error {
	if j.attempt == nil {
		return nil
	}
	reason, _ := j.attempt.reason.Load().(error)
	return reason
}

// attempt is one attempt of a job, which this program holds.
type attempt struct {
	row       *JobRow
	token     int64
	ctx       context.Context // the handler's
	cancelCtx context.CancelFunc
	reason    atomic.Value // an error: why ctx was cancelled
	settled   atomic.Bool  // what becomes of it is decided; what comes later does not count
	completed atomic.Bool  // by Complete, in a transaction that may be under way
	ended     atomic.Bool  // its handler has
	told      atomic.Bool  // the server knows what became of it, or need not
	result    string       // what is to be sent, as JSON
	isRefused bool         // the result before it was
	// left is how many seconds the server gives it, of which we leave it the margin; null is no limit.
	left, margin sql.NullFloat64
	// value makes a call that answers with one value.
	value func(ctx context.Context, answer any, call string, args ...any) error
}

func (a *attempt) cancel(reason error) {
	a.reason.CompareAndSwap(nil, reason)
	a.cancelCtx()
}

// settle is true for the first who asks: that one says what becomes of the attempt.
func (a *attempt) settle() bool { return !a.settled.Swap(true) }
