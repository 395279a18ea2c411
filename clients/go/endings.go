package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime/debug"
	"strings"
	"time"
)

// ending is an error that says what is to become of the job.
type ending struct {
	err error
	// result is what to send, where a handler ended with an error that wraps this one.
	result func(a *attempt, err error) object
}

func (e *ending) Error() string { return fmt.Sprint(e.err) }
func (e *ending) Unwrap() error { return e.err }

// Snooze ends a handler: return nil, jobs.Snooze(delay). The job comes again after the delay, and
// the attempt does not count. Like the other endings it is found also where it is wrapped.
func Snooze(delay time.Duration) error {
	return &ending{fmt.Errorf("snoozed for %v", delay), func(a *attempt, _ error) object {
		return a.result("snooze", "delay", math.Max(0, delay.Seconds()))
	}}
}

// Cancel ends a handler: the job is cancelled for this reason.
func Cancel(reason string) error {
	return &ending{errors.New(reason), func(a *attempt, _ error) object {
		return a.result("cancel", "reason", storable(reason))
	}}
}

// Discard ends a handler: the job has failed with this error, and is not tried again.
func Discard(err error) error {
	return &ending{err, func(a *attempt, err error) object {
		return a.failure(err, "retryable", false)
	}}
}

// RetryIn ends a handler: the attempt has failed with this error, and the job is tried again after
// the delay and not as its policy has it.
func RetryIn(delay time.Duration, err error) error {
	return &ending{err, func(a *attempt, err error) object {
		return a.failure(err, "retry_in", math.Max(0, delay.Seconds()))
	}}
}

// object is one of JSON.
type object map[string]any

// result is an element of what jobs.finish_many gets, with more members by name and value.
func (a *attempt) result(do string, more ...any) object {
	result := object{"id": a.row.ID, "token": a.token, "do": do}
	for i := 0; i < len(more); i += 2 {
		result[more[i].(string)] = more[i+1]
	}
	return result
}

// fail is the result of an attempt that failed.
func (a *attempt) fail(text, errorType string) object {
	return a.result("fail", "error", storable(text), "details", object{"type": storable(errorType)})
}

func (a *attempt) timeout() object { return a.fail(ErrTimeout.Error(), "timeout") }

// failure is the result of a handler that failed with an error, with one more member.
func (a *attempt) failure(err error, name string, value any) object {
	errorType := typeOf(err)
	text := fmt.Sprint(err) // fmt shows also an error whose method panics
	if text == "" {
		text = errorType
	}
	result := a.fail(text, errorType)
	details := result["details"].(object)
	var panicked panicked
	if errors.As(err, &panicked) && panicked.trace != "" {
		end := len(panicked.trace) - maxText
		details["trace"] = storable(panicked.trace[int(math.Max(0, float64(end))):])
	}
	if code := sqlState(err); code != "" {
		details["code"] = storable(code)
	}
	if name != "" {
		result[name] = value
	}
	return result
}

// perform runs a handler and calls end with what is to be sent, nil for nothing. A handler may end
// its goroutine, so that is to be the handler's own.
func (a *attempt) perform(handler Work, end func(object)) {
	var output []byte
	var err error = panicked{"the handler ended its goroutine, by runtime.Goexit or panic(nil)", ""}
	defer func() {
		if value := recover(); value != nil {
			err = panicked{value, string(debug.Stack())}
		}
		end(a.outcome(output, err))
	}()
	value, failed := handler(a.ctx, a.row)
	if failed == nil {
		if output, failed = encode(value); failed != nil {
			failed = invalidOutput{failed}
		}
	}
	err = failed
}

// outcome is what is to be sent after a handler has ended so; nil is nothing.
func (a *attempt) outcome(output []byte, err error) (result object) {
	defer func() { // an error can panic when it is asked what it is
		if recover() != nil {
			result = a.fail("the handler failed with an error that panics when it is shown", "panic")
		}
	}()
	reason := a.cancelledBecause()
	var ending *ending
	switch {
	case reason == ErrLost, err == nil && a.completed.Load():
		return nil
	case err == nil && string(output) == "null":
		return a.result("complete")
	case err == nil:
		return a.result("complete", "output", json.RawMessage(output))
	case errors.As(err, new(invalidOutput)):
		return a.fail(err.Error(), "invalid_output")
	case errors.As(err, &ending):
		return ending.result(a, err)
	case reason == ErrTimeout:
		return a.timeout()
	case reason != nil: // the server makes it cancelled, where somebody has cancelled the job
		return a.result("release")
	default:
		return a.failure(err, "", nil)
	}
}

// panicked is what a handler panicked with.
type panicked struct {
	value any
	trace string
}

func (p panicked) Error() string { return fmt.Sprint(p.value) }
func (p panicked) Unwrap() error {
	err, _ := p.value.(error)
	return err
}

// invalidOutput is why something that a handler returned cannot be written as JSON.
type invalidOutput struct{ error }

// typeOf is the name of an error's type, by which policies know it. What only wraps does not count.
func typeOf(err error) string {
	name, inner := strings.TrimPrefix(fmt.Sprintf("%T", err), "*"), errors.Unwrap(err)
	switch err.(type) {
	case *ending:
	case panicked:
		name = "panic"
	default:
		if name != "fmt.wrapError" {
			return name
		}
	}
	if inner == nil {
		return name
	}
	return typeOf(inner)
}

// sqlState is the SQLSTATE of an error of any driver, or "".
func sqlState(err error) string {
	for ; err != nil; err = errors.Unwrap(err) {
		if coded, ok := err.(interface{ SQLState() string }); ok {
			return coded.SQLState()
		}
		value := reflect.Indirect(reflect.ValueOf(err))
		if value.Kind() != reflect.Struct {
			continue
		}
		if code := value.FieldByName("Code"); code.Kind() == reflect.String && code.Len() == 5 {
			return code.String()
		}
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

// maxOutput is how many bytes of JSON Postgres takes in a message, with room for what is around.
const maxOutput = 1<<30 - 1<<20

// encode writes a value as JSON; whatever its methods do, there is an answer.
func encode(value any) (encoded []byte, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("writing it as JSON panicked: %v", panicked)
		}
	}()
	encoded, err = json.Marshal(value)
	if err == nil && len(encoded) > maxOutput {
		err = fmt.Errorf("it has %d bytes as JSON, at most %d", len(encoded), maxOutput)
	}
	return encoded, err
}
