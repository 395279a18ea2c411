package jobs

import (
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
		if a.job, err = typed[A](row); err != nil {
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
func (j *JobRow) Context() context.Context {
	if j.attempt == nil {
		return context.Background()
	}
	return j.attempt.ctx
}

// batch is a call of a handler of batches. Each job has its own goroutine, with its middleware and
// its timeout; they meet in the batch.
type batch struct {
	handler *handler
	mu      sync.Mutex
	jobs    []*attempt // in the order of the fetch
	arrived map[*attempt]bool
	closed  bool // it takes no more jobs
	begun   bool
	expire  sync.Once
	done    chan struct{} // is closed once the handler has returned
}

// join adds an attempt to the open batch of its handler.
func (h *handler) join(a *attempt) {
	if h.open == nil || !h.open.add(a) {
		h.open = &batch{handler: h, arrived: map[*attempt]bool{}, done: make(chan struct{})}
		h.open.add(a)
		if h.linger > 0 {
			time.AfterFunc(h.linger, h.open.close)
		}
	}
}

// add adds an attempt, unless the batch is closed. A full one closes.
func (b *batch) add(a *attempt) (isAdded bool) {
	b.change(func() {
		if isAdded = !b.closed; isAdded {
			a.batch, b.jobs = b, append(b.jobs, a)
			b.closed = len(b.jobs) == b.handler.size
		}
	})
	return isAdded
}

// close lets the batch run as it is.
func (b *batch) close() { b.change(func() { b.closed = true }) }

// change changes a batch, and runs it once it is closed and all of its jobs have arrived.
func (b *batch) change(how func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	how()
	if b.closed && !b.begun && len(b.arrived) == len(b.jobs) {
		b.begun = true
		go b.run()
	}
}

// leave takes an attempt out of a batch, unless that has begun.
func (b *batch) leave(a *attempt) (hasLeft bool) {
	b.change(func() {
		if hasLeft = !b.begun; hasLeft {
			delete(b.arrived, a)
			b.jobs = slices.DeleteFunc(b.jobs, func(other *attempt) bool { return other == a })
		}
	})
	return hasLeft
}

// work is the handler of a single job: it waits until the batch has ended it.
func (b *batch) work(ctx context.Context, a *attempt) (any, error) {
	b.change(func() { b.arrived[a] = true })
	var stopping <-chan struct{}
	if a.cell != nil {
		stopping = a.cell.stopping.Done()
	}
	select {
	case <-a.ended:
		return a.output, a.err
	case <-stopping:
	case <-ctx.Done():
	}
	if b.leave(a) { // it has not begun
		a.batch = nil
		a.cancel(ErrStopping) // unless it was cancelled
		return nil, context.Cause(ctx)
	}
	<-a.ended
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
	for _, a := range b.jobs {
		defer context.AfterFunc(a.ctx, func() { b.follow(a, cancel) })()
	}
	if len(b.jobs) > 0 {
		err = b.handler.batching(ctx, b.jobs)
	}
}

// follow cancels the handler's context after an attempt was cancelled or has ended.
func (b *batch) follow(a *attempt, cancel context.CancelCauseFunc) {
	if a.reason() == ErrTimeout { // that of one is that of all
		b.expire.Do(func() {
			for _, other := range b.jobs {
				if other.completed.Load() {
					go other.expire()
				} else {
					other.expire()
				}
			}
			cancel(ErrTimeout)
		})
		return
	}
	var reason error
	for _, other := range b.jobs {
		if other.settled.Load() {
			continue
		} else if reason = other.reason(); reason == nil {
			return
		}
	}
	if reason != nil {
		cancel(reason)
	}
}
