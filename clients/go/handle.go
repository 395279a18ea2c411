package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// Args are the args of jobs of one kind, to be written as JSON.
type Args interface {
	// Kind is the name of the kind. It must be the same for the zero value.
	Kind() string
}

type handler struct {
	work    Work
	timeout time.Duration
}

// HandlerOption says more about a handler.
type HandlerOption func(*handler)

// NoTimeout is the timeout that is no limit.
const NoTimeout = -time.Second

// Timeout is how long a handler may run, instead of the worker's timeout; it can be [NoTimeout].
// The deadline of the job ends it in any case.
func Timeout(timeout time.Duration) HandlerOption {
	return func(h *handler) { h.timeout = timeout }
}

// Handle gives the worker the handler for jobs whose args are of type A. What it returns is the
// output of the job, of anything that encoding/json writes; nil is none. An error or a panic fails
// the attempt, but for the endings [Snooze], [Cancel], [Discard] and [RetryIn].
//
// The context of the handler ends when it is to stop; [JobRow.CancelledBecause] says why. A handler
// that returns its error then ends as that reason has it. One that returns without an error has
// completed its job all the same.
//
// All handlers are given before the worker starts. One that cannot be is an error of the start.
func Handle[A Args](w *Worker, handle func(context.Context, *Job[A]) (any, error), options ...HandlerOption) {
	var args A
	HandleKind(w, args.Kind(), handle, options...)
}

// others is the kind of the handler for all kinds that have none of their own.
const others = ""

// HandleOthers gives the worker the handler for all kinds that have none of their own.
func HandleOthers[A any](w *Worker, handle func(context.Context, *Job[A]) (any, error), options ...HandlerOption) {
	HandleKind(w, others, handle, options...)
}

// HandleKind is as Handle, for args of any type. With json.RawMessage they are not decoded.
func HandleKind[A any](w *Worker, kind string, handle func(context.Context, *Job[A]) (any, error), options ...HandlerOption) {
	h := handler{timeout: w.options.Timeout, work: func(ctx context.Context, row *JobRow) (any, error) {
		job := &Job[A]{JobRow: row}
		if err := decode(row.RawArgs, &job.Args); err != nil {
			return nil, fmt.Errorf("the args of the job are not as the handler expects them: %w", err)
		}
		return handle(ctx, job)
	}}
	for i := len(w.options.Around) - 1; i >= 0; i-- {
		h.work = w.options.Around[i](h.work)
	}
	for _, option := range options {
		option(&h)
	}
	_, isThere := w.handlers[kind]
	w.require(!isThere, "kind %q has a handler already", kind)
	w.require(h.timeout > 0 || h.timeout == NoTimeout, "Timeout of kind %q is %v: positive, or NoTimeout", kind, h.timeout)
	if h.timeout < 0 {
		h.timeout = math.MaxInt64
	}
	w.handlers[kind] = h
}

// handler is the one for a kind.
func (w *Worker) handler(kind string) handler {
	if h, isThere := w.handlers[kind]; isThere {
		return h
	}
	return w.handlers[others]
}

// kinds are those to ask for, as an argument of a fetch; nil is all.
func (w *Worker) kinds() any {
	kinds := make([]string, 0, len(w.handlers))
	for kind := range w.handlers {
		if kind == others {
			return nil
		}
		kinds = append(kinds, kind)
	}
	return array(kinds)
}

// decode reads JSON, and keeps numbers exact.
func decode(encoded []byte, value any) error {
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.UseNumber()
	return decoder.Decode(value)
}
