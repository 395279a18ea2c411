package jobs

import (
	"context"
	"errors"
	"runtime"
	"strings"
)

// A call has at most maxResults, and takes no more results once it has maxBytes of JSON.
const maxResults, maxBytes = 1000, 16 << 20

// tellAgain sends a result again after a pause. Until then it holds its place.
func (w *Worker) tellAgain(a *attempt, err error) {
	w.options.Log.Warn("result refused, retrying", a.fields("error", err)...)
	if isOfValue(err) {
		a.result, _ = a.fail(invalidOutput(err))
	}
	w.change(func() { a.failures++ })
	go func() { w.pause(context.Background(), backOff(a.failures-1)); w.results <- a }()
}

// forget removes an attempt that is finished or lost.
func (w *Worker) forget(a *attempt) { w.change(func() { delete(w.held, a) }) }

// finishLoop sends results until the worker ends.
func (w *Worker) finishLoop(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case first := <-w.results:
			batch, results, bytes := []*attempt{first}, []string{first.result}, len(first.result)
			// Handlers that are ready to end go first.
			for runtime.Gosched(); len(w.results) > 0 && len(batch) < maxResults && bytes < maxBytes; runtime.Gosched() {
				next := <-w.results
				batch, results, bytes = append(batch, next), append(results, next.result), bytes+len(next.result)
			}
			w.finish(ctx, batch, results)
		case <-ctx.Done():
		}
	}
}

// finish sends the results of attempts. A refused result does not fail the others.
func (w *Worker) finish(ctx context.Context, batch []*attempt, results []string) {
	const call = "SELECT coalesce(reason, '') FROM jobs.finish_many($1) ORDER BY ord"
	reasons, err := query(ctx, w.finishing, value[string], call, "["+strings.Join(results, ",")+"]")
	for i, a := range batch {
		switch {
		case ctx.Err() != nil && err != nil: // the worker has ended
		case err != nil && len(batch) > 1:
			w.finish(ctx, batch[i:i+1], results[i:i+1])
		case err != nil:
			w.tellAgain(a, err)
		case reasons[i] == "locked": // by another transaction
			w.tellAgain(a, errors.New("locked"))
		default:
			if reasons[i] != "" {
				w.options.Log.Warn("job lost, result discarded", a.fields("reason", reasons[i])...)
			}
			w.forget(a)
		}
	}
}
