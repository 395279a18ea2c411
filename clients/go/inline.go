package jobs

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Worked is a job that [Worker.WorkAll] has run.
type Worked struct {
	ID    int64  `json:"id"`    // its number
	Kind  string `json:"kind"`  // what it is about
	State State  `json:"state"` // that of now
}

// maxInline is after how many attempts WorkAll gives up: a job that comes again at once has no end.
const maxInline = 10_000

// WorkAll is for tests, and package jobstest has more of these: it runs the jobs of the worker's
// queues that are due, one by one in the transaction, until there is no more. It returns these jobs
// with their states. The worker is not to be started.
func (w *Worker) WorkAll(ctx context.Context, tx DB) (worked []Worked, err error) {
	var ids []int64
	for len(ids) < maxInline {
		var job fetched
		row := tx.QueryRowContext(ctx, fetchCall, w.queues, 1, "WorkAll", "1 hour", w.kinds())
		if err = job.scan(row.Scan); errors.Is(err, sql.ErrNoRows) {
			const call = `SELECT coalesce(json_agg(j ORDER BY o), '[]') FROM jobs.jobs j JOIN
				(SELECT id, min(o) AS o FROM unnest($1::bigint[]) WITH ORDINALITY i(id, o) GROUP BY id) i
				USING (id)`
			err = queryJSON(ctx, tx, &worked, call, numbers(ids))
			return worked, err
		}
		if err != nil {
			return nil, err
		}
		ids = append(ids, job.id)
		if err = w.workOne(ctx, tx, job); err != nil {
			return nil, fmt.Errorf("jobs: job %d cannot be finished in the transaction: %w", job.id, err)
		}
	}
	return nil, fmt.Errorf("jobs: there was no end after %d attempts", maxInline)
}

// workOne runs the handler of a job, and finishes it.
func (w *Worker) workOne(ctx context.Context, tx DB, job fetched) error {
	a, work := w.attempt(ctx, job)
	defer a.cancelCtx()
	a.use = func(ctx context.Context, call func(context.Context, DB) error) error { return call(ctx, tx) }
	ended := make(chan object, 1)
	go a.perform(work, func(result object) { ended <- result })
	result := <-ended
	if result == nil {
		return nil
	}
	encoded, err := encode([]object{result})
	if err == nil {
		_, err = tx.ExecContext(ctx, "SELECT jobs.finish_many($1)", string(encoded))
	}
	return err
}
