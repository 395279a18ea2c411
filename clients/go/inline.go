package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"example.org/jobs/internal/database"
)

// Worked is an attempt made by [Worker.WorkAll], and the job after it.
type Worked struct {
	ID     int64           // of the job
	Kind   string          // of the job
	State  State           // after the attempt
	Output json.RawMessage // nil if there is none
	Error  string          // of the latest failed attempt
}

// maxInline is the number of attempts after which WorkAll gives up.
const maxInline = 1000

// WorkAll is for tests; package jobstest has more helpers. It runs the due jobs of the worker's
// queues in the transaction, one after another, until none is left. It returns the attempts in
// order.
//
// The writes of a handler stay if it returns no error; otherwise they are rolled back, and the
// failure is stored. Timeouts have no effect, and progress is not stored. The worker must not be
// started.
func (w *Worker) WorkAll(ctx context.Context, tx DB) (worked []Worked, err error) {
	if w.err != nil {
		return nil, w.err
	}
	for len(worked) < maxInline {
		fetched, err := database.Query(ctx, tx, scanAttempt, w.fetchCall(), array(w.options.Queues), 1, "WorkAll", "1 hour", array(w.kinds))
		if err != nil || len(fetched) == 0 {
			return worked, err
		}
		a := fetched[0]
		var one Worked
		if err = w.workOne(ctx, tx, a); err == nil {
			one, err = w.worked(ctx, tx, a)
		}
		if err != nil {
			return worked, fmt.Errorf("jobs: job %d cannot run in the transaction: %w", a.row.ID, err)
		}
		worked = append(worked, one)
	}
	return worked, errors.New("jobs: jobs are still due after 1,000 attempts")
}

// worked returns the job after an attempt.
func (w *Worker) worked(ctx context.Context, tx DB, a *attempt) (Worked, error) {
	const query = "SELECT state, output, coalesce(last_error, '') FROM jobs.jobs WHERE id = $1"
	rows, err := database.Query(ctx, tx, func(columns database.Columns) (Worked, error) {
		one := Worked{ID: a.row.ID, Kind: a.row.Kind}
		err := columns(&one.State, (*[]byte)(&one.Output), &one.Error)
		return one, err
	}, query, a.row.ID)
	return append(rows, Worked{})[0], err
}

// workOne runs the handler of a job within a savepoint, and finishes the job.
func (w *Worker) workOne(ctx context.Context, tx DB, a *attempt) (err error) {
	a.ctx, a.cancelCtx = context.WithCancelCause(ctx)
	defer a.cancel(nil)
	do := func(call string, args ...any) { // unless there was an error
		if err == nil {
			err = database.Exec(ctx, tx, call, args...)
		}
	}
	if do("SAVEPOINT work_all"); err != nil {
		return err
	}
	ended, returned, h := make(chan struct{}), false, w.handler(a.row.Kind)
	if h.batching != nil {
		h.join(a)
		a.batch.close()
	}
	handler := func(ctx context.Context, job *JobRow) (output any, err error) {
		output, err = h.work(ctx, job)
		returned = err == nil
		return output, err
	}
	go a.perform(handler, func(result string, _ error) {
		defer close(ended)
		if !returned {
			do("ROLLBACK TO SAVEPOINT work_all")
		}
		if result != "" {
			do("SELECT jobs.finish_many($1)", "["+result+"]")
		}
		if isOfValue(err) {
			result, _ = a.fail(invalidOutput(err))
			err = nil
			do("ROLLBACK TO SAVEPOINT work_all")
			do("SELECT jobs.finish_many($1)", "["+result+"]")
		}
	})
	<-ended
	do("RELEASE SAVEPOINT work_all")
	return err
}
