package jobs

import (
	"context"
	"runtime"
	"strings"
)

// maxResults are sent in one call at most, and maxBytes of JSON are enough for one.
const maxResults, maxBytes = 1000, 16 << 20

// tellAgain sends a result once more, after a pause. Until then it holds its place.
func (w *Worker) tellAgain(a *attempt, err error) {
	w.options.Log.Warn("a result is refused, or its job locked: it will be sent again", a.fields("error", err)...)
	if isOfValue(err) {
		a.result, _ = a.fail(invalidOutput(err))
	}
	w.change(func() { a.failures++ })
	go func() { w.pause(context.Background(), backOff(a.failures-1)); w.results <- a }()
}

// forget forgets an attempt of which there is nothing more to tell.
func (w *Worker) forget(a *attempt) { w.change(func() { delete(w.held, a) }) }

// finishLoop sends results until the worker ends: at once if no call is under way.
func (w *Worker) finishLoop(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case first := <-w.results:
			batch, results, bytes := []*attempt{first}, []string{first.result}, len(first.result)
			// Handlers that are ready to end go first, until none is.
			for runtime.Gosched(); len(w.results) > 0 && len(batch) < maxResults && bytes < maxBytes; runtime.Gosched() {
				next := <-w.results
				batch, results, bytes = append(batch, next), append(results, next.result), bytes+len(next.result)
			}
			w.finish(ctx, batch, results)
		case <-ctx.Done():
		}
	}
}

// finish sends the results of attempts. One that is refused spoils no other.
func (w *Worker) finish(ctx context.Context, batch []*attempt, results []string) {
	const call = "SELECT coalesce(reason, '') FROM jobs.finish_many($1) ORDER BY ord"
	reasons, err := query(ctx, w.finishing, value[string], call, "["+strings.Join(results, ",")+"]")
	for i, a := range batch {
		switch {
		case ctx.Err() != nil && err != nil: // the worker has ended
		case err != nil && len(batch) > 1:
			w.finish(ctx, batch[i:i+1], results[i:i+1])
		case err != nil || reasons[i] == "locked": // by another transaction
			w.tellAgain(a, err)
		default:
			if reasons[i] != "" {
				w.options.Log.Warn("a job was lost, its result is dropped", a.fields("reason", reasons[i])...)
			}
			w.forget(a)
		}
	}
}
