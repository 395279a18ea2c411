package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
)

// ending is an error that says what is to become of the job.
type ending struct {
	error
	do, member string // as jobs.finish_many has them
	value      any    // of the member
}

func (e *ending) Unwrap() error { return e.error }

// failed is the ending of an attempt that has failed.
func failed(err error, member string, value any) error {
	orDefault(&err, errors.New("no error was given"))
	return &ending{err, "fail", member, value}
}

// Snooze ends a handler: return nil, jobs.Snooze(delay). The job comes again after the delay, and
// the attempt does not count. Like the other endings it is found also where it is wrapped.
func Snooze(delay time.Duration) error {
	return &ending{fmt.Errorf("snoozed for %v", delay), "snooze", "delay", interval(delay)}
}

// Cancel ends a handler: the job is cancelled for this reason.
func Cancel(reason string) error {
	return &ending{errors.New(reason), "cancel", "reason", storable(reason)}
}

// Discard ends a handler: the job has failed with this error, and is not tried again.
func Discard(err error) error { return failed(err, "retryable", false) }

// RetryIn ends a handler: the attempt has failed with this error, and the job is tried again after
// the delay and not as its policy has it.
func RetryIn(delay time.Duration, err error) error { return failed(err, "retry_in", interval(delay)) }

// AttemptFailure is the error with which the attempt of a job fails if its handler ends so; nil if
// it does not fail. It is for middleware. Of an output that only the database refuses it knows
// nothing.
func AttemptFailure(job *JobRow, output any, err error) error {
	a := job.attempt
	orDefault(&a, &attempt{row: job})
	_, failure := a.outcome(output, err)
	return failure
}

// object is one of JSON.
type object map[string]any

// encode is an element of what jobs.finish_many gets, as JSON.
func (a *attempt) encode(do string, members object) string {
	members["id"], members["token"], members["do"] = a.row.ID, a.token, do
	encoded, _ := json.Marshal(members)
	return string(encoded)
}

// fail is the result of an attempt that failed with an error, and the error.
func (a *attempt) fail(err error) (result string, failure error) {
	// fmt shows also an error whose method panics.
	kind, text := ErrorType(err), storable(fmt.Sprint(err))
	orDefault(&text, kind)
	details := object{"type": kind}
	members := object{"error": text, "details": details}
	if panicked := (named{}); errors.As(err, &panicked) && panicked.trace != "" {
		details["trace"] = storable(panicked.trace)
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

// perform runs a handler and calls end with its outcome. A handler may end its goroutine, so that
// is to be the handler's own.
func (a *attempt) perform(handler Work, end func(result string, failure error)) {
	var output any
	var err error = named{name: "panic", text: "the handler ended its goroutine, by runtime.Goexit or panic(nil)"}
	defer func() { end(a.outcome(output, err)) }()
	defer recovered(&err) // of middleware
	output, err = handler(a.ctx, a.row)
}

// recovered makes an error of a panic, where it is deferred.
func recovered(err *error) {
	if value := recover(); value != nil {
		trace := string(debug.Stack())
		*err = named{"panic", fmt.Sprint(value), trace[len(trace)-least(len(trace), maxText):]}
	}
}

// outcome is the result of a handler that has ended so, "" for none. Where the attempt has failed
// there is an error as well.
func (a *attempt) outcome(output any, err error) (result string, failure error) {
	defer func() {
		if recover() != nil {
			result, failure = a.fail(named{name: "panic", text: "what the handler ended with panics when it is read"})
		}
	}()
	reason := a.row.CancelledBecause()
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
	case ending == nil && reason != nil: // the server cancels it, where somebody has cancelled the job
		return a.encode("release", object{}), nil
	}
	return a.fail(err)
}

// complete is the outcome of a handler that has returned.
func (a *attempt) complete(output any) (result string, failure error) {
	encoded, err := json.Marshal(output)
	switch {
	case err != nil:
		return a.fail(invalidOutput(err))
	case len(encoded) > 1<<30-2*maxBytes: // what Postgres takes in a message, less other results
		return a.fail(invalidOutput(fmt.Errorf("the output has %d bytes: too many", len(encoded))))
	case string(encoded) == "null":
		return a.encode("complete", object{}), nil
	}
	// As it is: encoding/json reads no JSON that is as deep as it writes.
	return fmt.Sprintf(`{"id":%d,"token":%d,"do":"complete","output":%s}`, a.row.ID, a.token, encoded), nil
}

// named is an error whose type has a name for policies that is not its own. A panic has a trace.
type named struct{ name, text, trace string }

func (n named) Error() string { return n.text }

// invalidOutput is an error of an output that cannot be written as JSON, or not stored.
func invalidOutput(err error) error { return named{name: "invalid_output", text: err.Error()} }

// ErrorType is the name of an error's type, as the details of a failure and retry policies have it.
// What only wraps does not count.
func ErrorType(err error) string {
	if known := (named{}); errors.As(err, &known) {
		return known.name
	}
	name := strings.TrimPrefix(fmt.Sprintf("%T", err), "*")
	if inner := errors.Unwrap(err); inner != nil && (name == "fmt.wrapError" || name == "jobs.ending") {
		return ErrorType(inner)
	}
	return storable(name)
}

// sqlState is the SQLSTATE of an error of any driver that tells it, or "".
func sqlState(err error) string {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) {
		return coded.SQLState()
	}
	return ""
}

// maxText is how many characters of a text are stored.
const maxText = 10_000

// storable is a text as the database can hold it: valid, and not too long.
func storable(text string) string {
	text = text[:least(len(text), 4*maxText)] // not all of 100 MB is to be looked at
	runes := []rune(strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD"))
	return string(runes[:least(len(runes), maxText)])
}
