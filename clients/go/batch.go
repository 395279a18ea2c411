package jobs

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// HandleBatch sets a handler that gets several jobs of a kind at once: up to the size, those that
// came within the linger of the first. See [Batch]. Each takes a place of the concurrency.
//
// It ends each job with [JobRow.End]. If it returns without an error, the others are completed
// without an output. If it returns an error or panics, they end so. Its context is cancelled with
// the timeout of the first job, or once the last job that it has not ended is cancelled;
// [JobRow.Context] is that of a single job.
func HandleBatch[A Args](w *Worker, fn func(context.Context, []*Job[A]) error, opts ...HandlerOption) {
	kind, opts := kindOf[A](w, opts)
	HandleKindBatch(w, kind, fn, opts...)
}

// HandleKindBatch is HandleBatch for a named kind and args of any type.
func HandleKindBatch[A any](w *Worker, kind string, fn func(context.Context, []*Job[A]) error, opts ...HandlerOption) {
	work := func(ctx context.Context, row *JobRow) (output any, err error) {
		a := row.attempt
		if a.job, err = typed[A](ctx, row); err != nil {
			return nil, err
		}
		return a.batch.work(ctx, a)
	}
	batching := func(ctx context.Context, attempts []*attempt) error {
		var jobs []*Job[A]
		for _, a := range attempts {
			jobs = append(jobs, a.job.(*Job[A]))
		}
		return fn(ctx, jobs)
	}
	w.handle(kind, &handler{work: work, batching: batching, size: 100}, opts)
}

// Batch sets the size of the batches of [HandleBatch], 100 by default, and how long a batch waits
// for more jobs: by default it has those that one fetch has brought.
func Batch(size int, linger time.Duration) HandlerOption {
	return func(h *handler) { h.size, h.linger = size, linger }
}

// End ends a job of [HandleBatch] as a handler of single jobs does by returning this. Only the
// first call counts.
func (j *JobRow) End(output any, err error) {
	if a := j.attempt; a != nil && a.batch != nil {
		a.endOnce.Do(func() {
			a.output, a.err = output, err
			close(a.ended)
		})
	}
}

// Context is cancelled when the handler must stop working on this job. A handler of single jobs
// has it as its argument.
func (j *JobRow) Context() context.Context { return cmp.Or(j.ctx, context.Background()) }

// batch is a call of a handler of batches. Each job has its own goroutine, with its middleware, and
// they meet here.
type batch struct {
	handler *handler
	mu      sync.Mutex
	absent  int        // how many jobs may still come
	jobs    []*attempt // that have come
	begun   bool
	done    chan struct{} // is closed once the handler has returned
}

// newBatch makes a batch of attempts.
func newBatch(h *handler, attempts []*attempt) {
	b := &batch{handler: h, absent: len(attempts), done: make(chan struct{})}
	for _, a := range attempts {
		a.batch = b
	}
}

// change changes a batch, and runs it once no job is absent.
func (b *batch) change(how func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	how()
	if b.absent == 0 && len(b.jobs) > 0 && !b.begun {
		b.begun = true
		go b.run()
	}
}

// leave takes an attempt out of a batch, unless that has begun.
func (b *batch) leave(a *attempt) (hasLeft bool) {
	b.change(func() {
		if hasLeft = !b.begun; !hasLeft {
			return
		}
		a.batch = nil
		if at := slices.Index(b.jobs, a); at >= 0 {
			b.jobs = slices.Delete(b.jobs, at, at+1)
		} else {
			b.absent--
		}
	})
	return hasLeft
}

// awaitBatch waits until the handler of the attempt's batch has returned, if that got its job.
func (a *attempt) awaitBatch() {
	if b := a.batch; b != nil && !b.leave(a) {
		<-b.done
	}
}

// work is the handler of a single job: it waits until the batch has ended it.
func (b *batch) work(ctx context.Context, a *attempt) (any, error) {
	b.change(func() { b.absent, b.jobs = b.absent-1, append(b.jobs, a) })
	select {
	case <-a.ended:
	case <-ctx.Done():
		if b.leave(a) {
			return nil, context.Cause(ctx)
		}
		<-a.ended
	}
	return a.output, a.err
}

// run calls the handler, and ends what it did not end.
func (b *batch) run() {
	ctx, cancel := context.WithCancelCause(context.Background())
	var err error = errGoexit
	defer func() {
		for _, a := range b.jobs {
			a.row.End(nil, err)
		}
		cancel(nil)
		close(b.done)
	}()
	defer recovered(&err)
	slices.SortStableFunc(b.jobs, byArrival)
	for _, a := range b.jobs {
		defer context.AfterFunc(a.ctx, func() { b.follow(cancel) })()
	}
	err = b.handler.batching(ctx, b.jobs)
}

// follow cancels the handler's context once the last job that it has not ended is cancelled.
func (b *batch) follow(cancel context.CancelCauseFunc) {
	var last error
	for _, a := range b.jobs {
		select {
		case <-a.ended:
			continue
		default:
		}
		reason := a.reason()
		if reason == nil {
			return
		}
		last = reason
	}
	if last != nil {
		cancel(last)
	}
}
