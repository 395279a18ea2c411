package jobs

import (
	"context"
	"errors"
	"runtime"
	"strings"

	"example.org/jobs/internal/database"
)

// A call has at most maxResults, and takes no more results once it has maxBytes of JSON.
const maxResults, maxBytes = 1000, 16 << 20

// tellAgain sends a result again after a pause. Until then it holds its place.
func (w *Worker) tellAgain(a *attempt, err error) {
	w.log().Warn("result refused, retrying", a.fields("error", oneLine(err))...)
	if isOfValue(err) {
		a.result, err = a.fail(invalidOutput(err))
		w.failed(a, err)
	}
	w.change(func() { a.failures++ })
	go func() { w.pause(context.Background(), backOff(a.failures-1)); a.cell.results <- a }()
}

// forget removes an attempt that is finished or lost.
func (w *Worker) forget(a *attempt) { w.change(func() { delete(w.held, a) }) }

// finishLoop sends results until the worker ends.
func (c *cell) finishLoop(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case first := <-c.results:
			batch, results, bytes := []*attempt{first}, []string{first.result}, len(first.result)
			// Handlers that are ready to end go first.
			for runtime.Gosched(); len(c.results) > 0 && len(batch) < maxResults && bytes < maxBytes; runtime.Gosched() {
				next := <-c.results
				batch, results, bytes = append(batch, next), append(results, next.result), bytes+len(next.result)
			}
			c.finish(ctx, batch, results)
		case <-ctx.Done():
		}
	}
}

// outcome is what the server answers to a result.
type outcome struct{ reason, state string }

func scanOutcome(columns database.Columns) (o outcome, err error) {
	err = columns(&o.reason, &o.state)
	return o, err
}

// finish sends the results of attempts. A refused result does not fail the others.
func (c *cell) finish(ctx context.Context, batch []*attempt, results []string) {
	const call = "SELECT coalesce(reason, ''), coalesce(state::text, '') FROM jobs.finish_many($1) ORDER BY ord"
	outcomes, err := query(ctx, c.finishing, scanOutcome, call, "["+strings.Join(results, ",")+"]")
	for i, a := range batch {
		switch {
		case ctx.Err() != nil && err != nil: // the worker has ended
		case err != nil && len(batch) > 1:
			c.finish(ctx, batch[i:i+1], results[i:i+1])
		case err != nil:
			c.tellAgain(a, err)
		case outcomes[i].reason == "locked": // by another transaction
			c.tellAgain(a, errors.New("locked"))
		default:
			if reason := outcomes[i].reason; reason != "" {
				c.log().Warn("job lost, result discarded", a.fields("reason", reason)...)
			} else if a.failure != nil && outcomes[i].state == "discarded" {
				c.log().Error("job discarded", a.failedFields(a.failure)...)
				c.hook(c.options.OnDiscarded, a, a.failure)
			}
			c.forget(a)
		}
	}
}
