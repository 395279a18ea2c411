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
	err     error
	do      string // as jobs.finish_many has it
	members object
}

func (e *ending) Error() string { return fmt.Sprint(e.err) }
func (e *ending) Unwrap() error { return e.err }

// Snooze ends a handler: return nil, jobs.Snooze(delay). The job comes again after the delay, and
// the attempt does not count. Like the other endings it is found also where it is wrapped.
func Snooze(delay time.Duration) error {
	return &ending{fmt.Errorf("snoozed for %v", delay), "snooze", object{"delay": interval(delay)}}
}

// Cancel ends a handler: the job is cancelled for this reason.
func Cancel(reason string) error {
	return &ending{errors.New(reason), "cancel", object{"reason": storable(reason)}}
}

// Discard ends a handler: the job has failed with this error, and is not tried again.
func Discard(err error) error {
	return &ending{err, "fail", object{"retryable": false}}
}

// RetryIn ends a handler: the attempt has failed with this error, and the job is tried again after
// the delay and not as its policy has it.
func RetryIn(delay time.Duration, err error) error {
	return &ending{err, "fail", object{"retry_in": interval(delay)}}
}

// IsFailure is whether a handler that ends so has failed. After Snooze and Cancel it has not.
func IsFailure(err error) bool {
	var ending *ending
	return err != nil && (!errors.As(err, &ending) || ending.do == "fail")
}

// object is one of JSON.
type object map[string]any

// encode is an element of what jobs.finish_many gets, as JSON.
func (a *attempt) encode(do string, members ...object) string {
	result := object{"id": a.row.ID, "token": a.token, "do": do}
	for _, more := range members {
		for name, value := range more {
			result[name] = value
		}
	}
	encoded, _ := json.Marshal(result)
	return string(encoded)
}

// fail is the result of an attempt that failed for a reason that is not the handler's error.
func (a *attempt) fail(text, errorType string) string {
	return a.encode("fail", object{"error": storable(text), "details": object{"type": errorType}})
}

// failure is the result of a handler that failed with an error.
func (a *attempt) failure(err error, members object) string {
	details := object{"type": storable(typeOf(err))}
	text := storable(fmt.Sprint(err)) // fmt shows also an error whose method panics
	if text == "" {
		text = storable(typeOf(err))
	}
	var panicked panicked
	if errors.As(err, &panicked) {
		trace := panicked.trace
		if len(trace) > maxText {
			trace = trace[len(trace)-maxText:]
		}
		details["trace"] = storable(trace)
	}
	if code := sqlState(err); code != "" {
		details["code"] = storable(code)
	}
	return a.encode("fail", object{"error": text, "details": details}, members)
}

// perform runs a handler and calls end with its result, "" for none, and whether it failed. A
// handler may end its goroutine, so that is to be the handler's own.
func (a *attempt) perform(handler Work, end func(result string, failed bool)) {
	var output any
	var err error = panicked{text: "the handler ended its goroutine, by runtime.Goexit or panic(nil)"}
	defer func() {
		if value := recover(); value != nil {
			err = panicked{fmt.Sprint(value), string(debug.Stack())}
		}
		end(a.outcome(output, err), err != nil)
	}()
	output, err = handler(a.ctx, a.row)
}

// outcome is the result of a handler that has ended so, "" for none.
func (a *attempt) outcome(output any, err error) (result string) {
	defer func() {
		if recover() != nil {
			result = a.fail("what the handler ended with panics when it is read", "panic")
		}
	}()
	reason := a.row.CancelledBecause()
	var ending *ending
	switch {
	case reason == ErrLost, err == nil && a.completed.Load():
		return ""
	case err == nil:
		return a.complete(output)
	case reason == ErrTimeout:
		return a.fail(ErrTimeout.Error(), "timeout")
	case errors.As(err, &ending) && ending.do == "fail":
		return a.failure(err, ending.members)
	case ending != nil:
		return a.encode(ending.do, ending.members)
	case reason != nil: // the server makes it cancelled, where somebody has cancelled the job
		return a.encode("release")
	default:
		return a.failure(err, nil)
	}
}

// maxOutput is how many bytes of JSON Postgres takes in a message, with room for what is around.
const maxOutput = 1<<30 - 1<<20

// complete is the result of a handler that has returned.
func (a *attempt) complete(output any) string {
	encoded, err := json.Marshal(output)
	switch {
	case err != nil:
		return a.fail(err.Error(), "invalid_output")
	case len(encoded) > maxOutput:
		return a.fail(fmt.Sprintf("the output has %d bytes, at most %d", len(encoded), maxOutput), "invalid_output")
	case string(encoded) == "null":
		return a.encode("complete")
	}
	// As it is: encoding/json reads no JSON that is as deep as it writes.
	return fmt.Sprintf(`{"id":%d,"token":%d,"do":"complete","output":%s}`, a.row.ID, a.token, encoded)
}

// panicked is what a handler panicked with.
type panicked struct{ text, trace string }

func (p panicked) Error() string { return p.text }

// typeOf is the name of an error's type, by which policies know it. What only wraps does not count.
func typeOf(err error) string {
	if errors.As(err, new(panicked)) {
		return "panic"
	}
	name := strings.TrimPrefix(fmt.Sprintf("%T", err), "*")
	if inner := errors.Unwrap(err); inner != nil && (name == "fmt.wrapError" || name == "jobs.ending") {
		return typeOf(inner)
	}
	return name
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
	if len(text) > 4*maxText { // not all of 100 MB is to be looked at
		text = text[:4*maxText]
	}
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if runes := []rune(text); len(runes) > maxText {
		text = string(runes[:maxText])
	}
	return text
}
