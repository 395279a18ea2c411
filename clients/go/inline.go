package jobs

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
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
		row := tx.QueryRowContext(ctx, w.fetchCall(), array(w.options.Queues), 1, "WorkAll", "1 hour", array(w.kinds))
		a, err := scanAttempt(row.Scan)
		if errors.Is(err, sql.ErrNoRows) {
			return worked, nil
		}
		if err == nil {
			err = w.workOne(ctx, tx, a)
		}
		one := Worked{ID: a.row.ID, Kind: a.row.Kind}
		if err == nil {
			const query = "SELECT state, output, coalesce(last_error, '') FROM jobs.jobs WHERE id = $1"
			err = tx.QueryRowContext(ctx, query, one.ID).Scan(&one.State, (*[]byte)(&one.Output), &one.Error)
		}
		if err != nil {
			return worked, fmt.Errorf("jobs: job %d cannot run in the transaction: %w", one.ID, err)
		}
		worked = append(worked, one)
	}
	return worked, errors.New("jobs: jobs are still due after 1,000 attempts")
}

// workOne runs the handler of a job within a savepoint, and finishes the job.
func (w *Worker) workOne(ctx context.Context, tx DB, a *attempt) (err error) {
	a.ctx, a.cancelCtx = context.WithCancel(ctx)
	defer a.cancelCtx()
	do := func(call string, args ...any) { // unless there was an error
		if err == nil {
			_, err = tx.ExecContext(ctx, call, args...)
		}
	}
	if do("SAVEPOINT work_all"); err != nil {
		return err
	}
	ended, returned := make(chan struct{}), false
	handler := func(ctx context.Context, job *JobRow) (output any, err error) {
		output, err = w.handler(job.Kind).work(ctx, job)
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
