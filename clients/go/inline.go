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
// The writes of a handler stay if it returns no error and a valid output; otherwise they are rolled
// back, and the failure is stored. Timeouts have no effect, and progress is not stored. The worker
// must not be started.
func (w *Worker) WorkAll(ctx context.Context, tx DB) (worked []Worked, err error) {
	if w.err != nil {
		return nil, w.err
	}
	// This fails outside a transaction, before a job is taken.
	for _, call := range []string{"SAVEPOINT work_all", "RELEASE SAVEPOINT work_all"} {
		if err = database.Exec(ctx, tx, call); err != nil {
			return nil, fmt.Errorf("jobs: WorkAll needs a transaction: %w", err)
		}
	}
	for len(worked) < maxInline {
		fetched, err := database.Query(ctx, tx, scanAttempt, fetchJobs, array(w.options.Queues), 1, "WorkAll", "1 hour", array(w.kinds))
		if err != nil || len(fetched) == 0 {
			return worked, database.Advise(err, "grant_application", tx)
		}
		a := fetched[0]
		var found []Result[json.RawMessage]
		if err = w.workOne(ctx, tx, a); err == nil {
			found, err = results[json.RawMessage](ctx, tx, []int64{a.row.ID})
		}
		if err != nil {
			return worked, fmt.Errorf("jobs: job %d cannot run in the transaction: %w", a.row.ID, err)
		}
		one := found[0]
		worked = append(worked, Worked{one.ID, a.row.Kind, one.State, one.Output, one.Error})
	}
	return worked, errors.New("jobs: jobs are still due after 1,000 attempts")
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
		newBatch(h, []*attempt{a})
	}
	handler := func(ctx context.Context, job *JobRow) (output any, err error) {
		output, err = h.work(ctx, job)
		returned = err == nil
		return output, err
	}
	go a.perform(handler, func(result string, failure error) {
		defer close(ended)
		a.awaitBatch() // it may still use the transaction
		finish := func() {
			if !returned || failure != nil {
				do("ROLLBACK TO SAVEPOINT work_all")
			}
			if result != "" {
				do("SELECT jobs.finish_many($1)", "["+result+"]")
			}
		}
		if finish(); isOfValue(err) {
			result, failure = a.fail(invalidOutput(err))
			err = nil
			finish()
		}
	})
	<-ended
	do("RELEASE SAVEPOINT work_all")
	return err
}
