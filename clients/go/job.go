package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"
)

// Why a handler was cancelled, as [JobRow.CancelledBecause] tells it.
var (
	// ErrTimeout: the attempt took too long. It has failed already; what the handler returns does
	// not matter any more.
	ErrTimeout = errors.New("the attempt took longer than its timeout")
	// ErrCancelled: somebody cancelled the job.
	ErrCancelled = errors.New("the job was cancelled")
	// ErrStopping: the worker stops, and the grace period is over. The job is released: another
	// worker gets it, and the attempt does not count.
	ErrStopping = errors.New("the worker stops")
	// ErrLost: the job is somebody else's by now, or it is gone. What the handler returns is dropped.
	ErrLost = errors.New("the job was lost")
)

// Job is what a handler gets: a job whose args are of type A.
type Job[A any] struct {
	*JobRow
	// Args are the args of the job, decoded by encoding/json. Where A has a place of type any,
	// numbers become json.Number, so that they are exact.
	Args A
}

// JobRow is a job whatever its args, as middleware gets it.
type JobRow struct {
	// ID is the number of the job. It is a good idempotency key.
	ID int64 `json:"id"`
	// Kind is what the job is about; the handler was found by it.
	Kind string `json:"kind"`
	// Queue is that from which the job was fetched.
	Queue string `json:"queue"`
	// RawArgs are the args as JSON.
	RawArgs json.RawMessage `json:"args"`
	// Meta is what the producer and its middleware want to say beside the args. Numbers in it are
	// json.Number.
	Meta map[string]any `json:"meta"`
	// Tags are words to find the job by.
	Tags []string `json:"tags"`
	// Priority orders jobs within a queue, the lower number first.
	Priority int `json:"priority"`
	// Attempt is the number of this attempt, from 1.
	Attempt int `json:"attempt"`
	// MaxAttempts is after how many failed attempts the job is discarded.
	MaxAttempts int `json:"max_attempts"`
	// CreatedAt is when the job was inserted, by the clock of the server.
	CreatedAt time.Time `json:"created_at"`
	// ScheduledAt is when the job was to run, by the clock of the server.
	ScheduledAt time.Time `json:"scheduled_at"`
	// AttemptedAt is when this attempt began, by the clock of the server.
	AttemptedAt time.Time `json:"attempted_at"`
	// Deadline is when the server ends this attempt, by the clock of this program; the zero time is
	// never. The context of the handler ends somewhat earlier.
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
	if j.attempt.isSettled() {
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
	j.attempt.setCompleted(true)
	_, err = tx.ExecContext(ctx, "SELECT jobs.complete($1, $2, $3)", j.ID, j.attempt.token, nullable(encoded))
	if err != nil {
		j.attempt.setCompleted(false)
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
	id, token int64
	row       *JobRow
	// ctx is the handler's.
	ctx       context.Context
	cancelCtx context.CancelFunc
	// use calls a function with a connection on which it may tell the server something.
	use func(context.Context, func(context.Context, DB) error) error

	mu     sync.Mutex
	reason error // why ctx was cancelled
	// settled: what becomes of the attempt is decided; nothing that comes later counts.
	settled bool
	// completed: by Complete, in a transaction that may be under way.
	completed bool
}

func (a *attempt) cancel(reason error) {
	a.mu.Lock()
	if a.reason == nil {
		a.reason = reason
	}
	a.mu.Unlock()
	a.cancelCtx()
}

func (a *attempt) cancelledBecause() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reason == nil && errors.Is(a.ctx.Err(), context.DeadlineExceeded) {
		return ErrTimeout
	}
	return a.reason
}

// settle is true for the first who asks: that one says what becomes of the attempt.
func (a *attempt) settle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := !a.settled
	a.settled = true
	return first
}

func (a *attempt) isSettled() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.settled
}

func (a *attempt) setCompleted(completed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.completed = completed
}

func (a *attempt) isCompleted() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.completed
}

// progress stores progress, and hears what the server has to say about the job.
func (a *attempt) progress(ctx context.Context, db DB, value []byte) error {
	var cancelRequested bool
	const call = "SELECT cancel_requested FROM jobs.heartbeat($1, $2, progress => $3)"
	err := db.QueryRowContext(ctx, call, a.id, a.token, string(value)).Scan(&cancelRequested)
	if state := sqlState(err); state == "55000" || state == "P0002" {
		a.cancel(ErrLost)
		return ErrLost
	}
	if err == nil && cancelRequested {
		a.cancel(ErrCancelled)
	}
	return err
}
