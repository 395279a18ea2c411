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

// outgoing is a result that is to be sent.
type outgoing struct {
	attempt *attempt
	result  string
	isFinal bool // it says that the result before it was refused
}

// send sends the result of an attempt, at once if no call is under way.
func (w *Worker) send(a *attempt, result string) {
	if result == "" {
		a.told.Store(true)
		return
	}
	w.change(func() { w.results = append(w.results, outgoing{attempt: a, result: result}) })
}

// finishLoop sends results until the worker ends.
func (w *Worker) finishLoop(ctx context.Context) {
	for batch := w.nextBatch(); len(batch) > 0; batch = w.nextBatch() {
		w.finish(ctx, batch)
	}
}

// nextBatch waits for what to send in one call. It is empty if nothing will come.
func (w *Worker) nextBatch() []outgoing {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.results) == 0 && !w.closing {
		w.changed.Wait()
	}
	w.yield()
	count, bytes := 0, 0
	for count < len(w.results) && count < maxResults {
		bytes += len(w.results[count].result)
		if count > 0 && bytes > maxBytes {
			break
		}
		count++
	}
	batch := w.results[:count]
	w.results = w.results[count:]
	return batch
}

// yield lets handlers go first that are ready to end: they are told of in one call, and make room
// for one fetch.
func (w *Worker) yield() {
	w.mu.Unlock()
	runtime.Gosched()
	w.mu.Lock()
}

// finish sends results. One that is refused because of its value spoils no other.
func (w *Worker) finish(ctx context.Context, batch []outgoing) {
	err := w.finishMany(ctx, batch)
	one := batch[0]
	switch {
	case ctx.Err() != nil: // what is not told by now is lost
	case err == nil:
	case len(batch) > 1:
		for i := range batch {
			w.finish(ctx, batch[i:i+1])
		}
	case !one.isFinal:
		w.finish(ctx, []outgoing{{one.attempt, one.attempt.fail(err.Error(), "invalid_output"), true}})
	default:
		w.options.Log.Error("a result cannot be sent", "job", one.attempt.row.ID, "error", err)
	}
}

// finishMany makes the call.
func (w *Worker) finishMany(ctx context.Context, batch []outgoing) error {
	results := make([]string, len(batch))
	for i, one := range batch {
		results[i] = one.result
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
			for _, one := range batch {
				one.attempt.told.Store(true)
				w.forget(one.attempt)
			}
		})
	}
	return err
}
