package jobs

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Worked is a job that [Worker.WorkAll] has run.
type Worked struct {
	// ID is the number of the job.
	ID int64 `json:"id"`
	// Kind is what it is about.
	Kind string `json:"kind"`
	// State is that of now.
	State State `json:"state"`
}

// maxInline is after how many attempts WorkAll gives up: a job that comes again at once would never
// end.
const maxInline = 10_000

// WorkAll is for tests, and package jobstest has more of these: it runs the jobs of the worker's
// queues that are due, one by one in the transaction, until there is no more. It returns these jobs
// with their states. The worker is not to be started.
func (w *Worker) WorkAll(ctx context.Context, tx DB) ([]Worked, error) {
	var ids []int64
	for count := 0; count < maxInline; count++ {
		job, err := w.fetchOne(ctx, tx)
		if err != nil {
			return nil, err
		}
		if job == nil {
			const call = `SELECT coalesce(json_agg(j ORDER BY o), '[]')
				FROM unnest($1::bigint[]) WITH ORDINALITY i(id, o) JOIN jobs.jobs j USING (id)`
			var worked []Worked
			err := queryJSON(ctx, tx, &worked, call, numbers(ids))
			return worked, err
		}
		if !contains(ids, job.id) {
			ids = append(ids, job.id)
		}
		if err := w.workOne(ctx, tx, *job); err != nil {
			return nil, fmt.Errorf("jobs: job %d cannot be finished in the transaction: %w", job.id, err)
		}
	}
	return nil, fmt.Errorf("jobs: there was no end after %d attempts", maxInline)
}

// fetchOne is a job that is due; nil if there is none.
func (w *Worker) fetchOne(ctx context.Context, tx DB) (*fetched, error) {
	job := &fetched{}
	err := job.scan(tx.QueryRowContext(ctx, fetchCall, w.queues, 1, "WorkAll", "1 hour", w.kinds()).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return job, err
}

// workOne runs the handler of a job, and finishes it.
func (w *Worker) workOne(ctx context.Context, tx DB, job fetched) error {
	a, work := w.attempt(ctx, job)
	a.use = func(ctx context.Context, call func(context.Context, DB) error) error { return call(ctx, tx) }
	defer a.cancelCtx()
	outcome := make(chan *result, 1)
	go a.perform(work, func(out *result) { outcome <- out })
	out := <-outcome
	if out == nil {
		return nil
	}
	encoded, err := encode([]*result{out})
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "SELECT jobs.finish_many($1)", string(encoded))
	return err
}

func contains(ids []int64, id int64) bool {
	for _, one := range ids {
		if one == id {
			return true
		}
	}
	return false
}
