package jobs

import (
	"context"
	"runtime"
	"strings"
)

const (
	// maxResults is how many results are sent in one call at most.
	maxResults = 1000
	// maxBytes is how many bytes of JSON these have; a larger one is sent by itself.
	maxBytes = 16 << 20
)

// send sends the result of an attempt, at once if no call is under way.
func (w *Worker) send(a *attempt, result string) {
	if result == "" {
		a.told.Store(true)
		return
	}
	a.result = result
	w.change(func() { w.unsent = append(w.unsent, a) })
}

// finishLoop sends results until the worker ends.
func (w *Worker) finishLoop(ctx context.Context) {
	for batch := w.nextBatch(); len(batch) > 0; batch = w.nextBatch() {
		w.finish(ctx, batch)
	}
}

// nextBatch waits for what to send in one call. It is empty if nothing will come.
func (w *Worker) nextBatch() []*attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.unsent) == 0 && !w.closing {
		w.changed.Wait()
	}
	w.yield()
	count, bytes := 0, 0
	for count < len(w.unsent) && count < maxResults {
		bytes += len(w.unsent[count].result)
		if count > 0 && bytes > maxBytes {
			break
		}
		count++
	}
	batch := w.unsent[:count]
	w.unsent = w.unsent[count:]
	return batch
}

// yield lets handlers go first that are ready to end, until none is: they are told of in one call,
// and make room for one fetch.
func (w *Worker) yield() {
	for seen := -1; seen != w.changes; {
		seen = w.changes
		w.mu.Unlock()
		runtime.Gosched()
		w.mu.Lock()
	}
}

// finish sends the results of attempts. One that is refused because of its value spoils no other.
func (w *Worker) finish(ctx context.Context, batch []*attempt) {
	err := w.finishMany(ctx, batch)
	one := batch[0]
	switch {
	case ctx.Err() != nil: // what is not told by now is lost
	case err == nil:
	case len(batch) > 1:
		for i := range batch {
			w.finish(ctx, batch[i:i+1])
		}
	case !one.isRefused:
		one.isRefused = true
		one.result = one.fail(err.Error(), "invalid_output")
		w.finish(ctx, batch)
	default:
		w.options.Log.Error("a result cannot be sent", "job", one.row.ID, "error", err)
	}
}

// finishMany makes the call.
func (w *Worker) finishMany(ctx context.Context, batch []*attempt) error {
	results := make([]string, len(batch))
	for i, a := range batch {
		results[i] = a.result
	}
	dropped := func(columns columns) error {
		var id int64
		var reason string
		err := columns(&id, &reason)
		w.options.Log.Warn("a job was lost, its result is dropped", "job", id, "reason", reason)
		return err
	}
	const call = "SELECT id, reason FROM jobs.finish_many($1) WHERE NOT done"
	err := w.finishing.do(ctx, patience, &w.isFailing, func(ctx context.Context) error {
		return w.finishing.query(ctx, dropped, call, "["+strings.Join(results, ",")+"]")
	})
	if err == nil {
		w.change(func() {
			for _, a := range batch {
				a.told.Store(true)
				w.forget(a)
			}
		})
	}
	return err
}
