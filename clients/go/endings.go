package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"example.org/jobs/internal/database"
)

// ending is an error that chooses how the attempt ends.
type ending struct {
	error
	do, member string // of an element of jobs.finish_many
	value      any    // of the member
}

func (e *ending) Unwrap() error { return e.error }

// failed is the ending of a failed attempt.
func failed(err error, member string, value any) error {
	orDefault(&err, errors.New("no error was given"))
	return &ending{err, "fail", member, value}
}

// Snooze schedules the job again after the delay: return nil, jobs.Snooze(delay). The attempt does
// not count. Like the other endings, it can be wrapped.
func Snooze(delay time.Duration) error {
	return &ending{fmt.Errorf("snoozed for %v", delay), "snooze", "delay", interval(delay)}
}

// Cancel cancels the job with this reason.
func Cancel(reason string) error {
	return &ending{errors.New(reason), "cancel", "reason", storable(reason)}
}

// Discard fails the attempt with this error and discards the job.
func Discard(err error) error { return failed(err, "retryable", false) }

// RetryIn fails the attempt with this error and retries the job after the delay, whatever its retry
// policy.
func RetryIn(delay time.Duration, err error) error { return failed(err, "retry_in", interval(delay)) }

// AttemptFailure returns the error with which the attempt of a job fails if its handler returns
// this output and error, or nil if it does not fail. It is for middleware. It does not detect an
// output that only the database refuses.
func AttemptFailure(job *JobRow, output any, err error) error {
	a := cmp.Or(job.attempt, &attempt{row: job, ctx: context.Background()})
	_, failure := a.outcome(output, err)
	return failure
}

// object is a JSON object.
type object map[string]any

// encode returns an element of the argument of jobs.finish_many, as JSON.
func (a *attempt) encode(do string, members object) string {
	members["id"], members["token"], members["do"] = a.row.ID, a.token, do
	encoded, _ := json.Marshal(members)
	return string(encoded)
}

// fail returns the result of an attempt that failed with an error, and the error.
func (a *attempt) fail(err error) (result string, failure error) {
	// fmt can also print an error whose method panics.
	kind, text := ErrorType(err), storable(fmt.Sprint(err))
	orDefault(&text, kind)
	details := object{"type": kind}
	members := object{"error": text, "details": details}
	if trace := traceOf(err); trace != "" {
		details["trace"] = trace
	}
	if code := sqlState(err); code != "" {
		details["code"] = storable(code)
	}
	var ending *ending
	if errors.As(err, &ending) {
		members[ending.member] = ending.value
	}
	return a.encode("fail", members), err
}

// perform runs a handler and calls end with its outcome. It needs its own goroutine, which a
// handler may end.
func (a *attempt) perform(handler Work, end func(result string, failure error)) {
	var output any
	var err error = errGoexit
	defer func() { end(a.outcome(output, err)) }()
	defer recovered(&err) // of middleware
	a.row.ctx = a.ctx
	output, err = handler(a.ctx, a.row)
}

var errGoexit = named{name: "panic", text: "the handler ended its goroutine, by runtime.Goexit"}

// recovered turns a panic into an error, if it is deferred.
func recovered(err *error) {
	if value := recover(); value != nil {
		trace := string(debug.Stack())
		*err = named{"panic", fmt.Sprint(value), trace[len(trace)-min(len(trace), maxText):]}
	}
}

// outcome returns the result of a handler that returned this, "" for none, and an error if the
// attempt has failed.
func (a *attempt) outcome(output any, err error) (result string, failure error) {
	defer func() {
		if recover() != nil {
			result, failure = a.fail(named{name: "panic", text: "the handler's error panics when it is read"})
		}
	}()
	reason := a.reason()
	var ending *ending
	switch {
	case reason == ErrLost, err == nil && a.completed.Load():
		return "", nil
	case reason == ErrTimeout:
		return a.fail(reason)
	case err == nil:
		return a.complete(output)
	case errors.As(err, &ending) && ending.do != "fail":
		return a.encode(ending.do, object{ending.member: ending.value}), nil
	case ending == nil && reason != nil: // the server cancels the job if a cancel was requested
		return a.encode("release", object{}), nil
	}
	return a.fail(err)
}

// complete returns the outcome of a handler that returned without an error.
func (a *attempt) complete(output any) (result string, failure error) {
	encoded, err := marshal(output)
	switch {
	case err != nil:
		return a.fail(invalidOutput(err))
	case len(encoded) > 1<<30-2*maxBytes: // the limit of a message to Postgres, less other results
		return a.fail(invalidOutput(fmt.Errorf("%d bytes are too many", len(encoded))))
	case string(encoded) == "null":
		return a.encode("complete", object{}), nil
	}
	// Unchanged: encoding/json cannot read JSON as deep as it writes.
	return fmt.Sprintf(`{"id":%d,"token":%d,"do":"complete","output":%s}`, a.row.ID, a.token, encoded), nil
}

// marshal is json.Marshal, with a panic of a method as an error.
func marshal(value any) (_ []byte, err error) {
	defer recovered(&err)
	return json.Marshal(value)
}

// named is an error with a type name of its own for retry policies. A panic has a trace.
type named struct{ name, text, trace string }

func (n named) Error() string { return n.text }

// traceOf returns the trace of a panic, or "".
func traceOf(err error) string {
	var panicked named
	errors.As(err, &panicked)
	return storable(panicked.trace)
}

// invalidOutput is the error for an output that cannot be stored as JSON.
func invalidOutput(err error) error { return named{name: "invalid_output", text: err.Error()} }

// ErrorType returns the name of an error's type, as used in the details of a failure and by retry
// policies. It looks through wrappers.
func ErrorType(err error) string {
	if known := (named{}); errors.As(err, &known) {
		return known.name
	}
	name := strings.TrimPrefix(fmt.Sprintf("%T", err), "*")
	if inner := errors.Unwrap(err); inner != nil && (name == "fmt.wrapError" || name == "jobs.ending" || name == "database.Explained") {
		return ErrorType(inner)
	}
	return storable(name)
}

// sqlState returns the SQLSTATE of an error of any driver that exposes it, or "".
func sqlState(err error) string { return database.SQLState(err) }

// maxText is the maximum length of a stored text, in characters.
const maxText = 10_000

// storable returns a text that the database can store: valid, and cut.
func storable(text string) string {
	text = text[:min(len(text), 4*maxText)] // avoids scanning a huge text
	runes := []rune(strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD"))
	return string(runes[:min(len(runes), maxText)])
}
