package jobs

import (
	"context"
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
	ID          int64           `json:"id"`           // a good idempotency key
	Kind        string          `json:"kind"`         // what the job is about
	Queue       string          `json:"queue"`        // from which it was fetched
	RawArgs     json.RawMessage `json:"args"`         // the args as JSON
	Meta        map[string]any  `json:"meta"`         // what was said beside the args
	Tags        []string        `json:"tags"`         // words to find it by
	Priority    int             `json:"priority"`     // the lower number goes first
	Attempt     int             `json:"attempt"`      // the number of this attempt, from 1
	MaxAttempts int             `json:"max_attempts"` // after so many it is discarded
	CreatedAt   time.Time       `json:"-"`            // when it was inserted
	ScheduledAt time.Time       `json:"-"`            // when it was to run
	AttemptedAt time.Time       `json:"-"`            // when this attempt began
	// Deadline is when the server ends this attempt, by the clock of this program; zero is never.
	// The context of the handler ends somewhat earlier.
	Deadline time.Time `json:"-"`

	attempt *attempt
}

// Progress stores a value of any JSON, which jobs.jobs shows, and renews the lease of the job. It
// returns ErrLost where the job is somebody else's by now; the handler is cancelled then.
func (j *JobRow) Progress(ctx context.Context, value any) error {
	encoded, err := encode(value)
	if err != nil || j.attempt == nil {
		return err
	}
	if j.attempt.settled.Load() {
		return j.CancelledBecause()
	}
	return j.attempt.use(ctx, func(ctx context.Context, db DB) error {
		return j.attempt.progress(ctx, db, encoded)
	})
}

// Complete completes the job within a transaction of the handler, with this output. So the end of
// the job and what the handler writes in the transaction come true together, or neither does.
//
// Commit next, and return: the worker sends nothing more, and it renews the lease no more. An error
// of Complete belongs to the transaction: roll back, and return it.
func (j *JobRow) Complete(ctx context.Context, tx DB, output any) error {
	encoded, err := encode(output)
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
	return j.attempt.cancelledBecause()
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
	// use calls a function with a connection on which it may tell the server something.
	use func(context.Context, func(context.Context, DB) error) error
}

func (a *attempt) cancel(reason error) {
	a.reason.CompareAndSwap(nil, reason)
	a.cancelCtx()
}

func (a *attempt) cancelledBecause() error {
	if reason, ok := a.reason.Load().(error); ok {
		return reason
	}
	if a.ctx.Err() == context.DeadlineExceeded {
		return ErrTimeout
	}
	return nil
}

// settle is true for the first who asks: that one says what becomes of the attempt.
func (a *attempt) settle() bool { return !a.settled.Swap(true) }

// progress stores progress, and hears what the server has to say about the job.
func (a *attempt) progress(ctx context.Context, db DB, value []byte) error {
	var cancelRequested bool
	const call = "SELECT cancel_requested FROM jobs.heartbeat($1, $2, progress => $3)"
	err := db.QueryRowContext(ctx, call, a.row.ID, a.token, string(value)).Scan(&cancelRequested)
	if state := sqlState(err); state == "55000" || state == "P0002" {
		a.cancel(ErrLost)
		return ErrLost
	}
	if cancelRequested {
		a.cancel(ErrCancelled)
	}
	return err
}
