package jobs

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
)

// Worked is an attempt that [Worker.WorkAll] has made, and what it has left.
type Worked struct {
	ID     int64           // of the job
	Kind   string          // what it is about
	State  State           // after the attempt
	Output json.RawMessage // what the handler returned; nil is none
	Error  string          // the text of the latest error
}

// maxInline is after how many attempts WorkAll gives up: a job that comes again at once has no end.
const maxInline = 1000

// WorkAll is for tests, and package jobstest has more of these: it runs the jobs of the worker's
// queues that are due, one after another in the transaction, until nothing is. It returns the
// attempts in order.
//
// What a handler does in the transaction stays if it returns no error; else it is undone, and the
// failure is stored. Timeouts and progress play no part. The worker is not to be started.
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
			return worked, fmt.Errorf("jobs: job %d cannot be worked in the transaction: %w", one.ID, err)
		}
		worked = append(worked, one)
	}
	return worked, errors.New("jobs: there is no end after 1,000 attempts")
}

// workOne runs the handler of a job within a savepoint, and finishes the job.
func (w *Worker) workOne(ctx context.Context, tx DB, a *attempt) (err error) {
	a.ctx, a.cancelCtx = context.WithCancel(ctx)
	defer a.cancelCtx()
	do := func(call string, args ...any) { // until there is an error
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
