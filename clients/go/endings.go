package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"
)

// ending is an error that says what is to become of the job.
type ending struct {
	do    string
	err   error
	delay time.Duration
}

func (e *ending) Error() string { return fmt.Sprint(e.err) }
func (e *ending) Unwrap() error { return e.err }

// Snooze ends a handler: return nil, jobs.Snooze(delay). The job comes again after the delay, and
// the attempt does not count. Like the other endings it is found also where it is wrapped.
func Snooze(delay time.Duration) error {
	return &ending{do: "snooze", err: fmt.Errorf("snoozed for %v", delay), delay: delay}
}

// Cancel ends a handler: the job is cancelled for this reason.
func Cancel(reason string) error {
	return &ending{do: "cancel", err: errors.New(reason)}
}

// Discard ends a handler: the job has failed with this error, and is not tried again.
func Discard(err error) error {
	return &ending{do: "discard", err: err}
}

// RetryIn ends a handler: the attempt has failed with this error, and the job is tried again after
// the delay and not as its policy has it.
func RetryIn(delay time.Duration, err error) error {
	return &ending{do: "retry", err: err, delay: delay}
}

// result is an element of what jobs.finish_many gets.
type result struct {
	ID        int64             `json:"id"`
	Token     int64             `json:"token"`
	Do        string            `json:"do"`
	Output    json.RawMessage   `json:"output,omitempty"`
	Error     string            `json:"error,omitempty"`
	Details   map[string]string `json:"details,omitempty"`
	Retryable *bool             `json:"retryable,omitempty"`
	RetryIn   *float64          `json:"retry_in,omitempty"`
	Delay     *float64          `json:"delay,omitempty"`
	Reason    string            `json:"reason,omitempty"`
}

func (a *attempt) result(do string) *result {
	return &result{ID: a.id, Token: a.token, Do: do}
}

func (a *attempt) failure(text, errorType string) *result {
	failed := a.result("fail")
	failed.Error, failed.Details = storable(text), map[string]string{"type": storable(errorType)}
	return failed
}

func (a *attempt) timeout() *result {
	return a.failure(ErrTimeout.Error(), "timeout")
}

// perform runs a handler and calls end with what is to be sent, nil for nothing. A handler may end
// its goroutine, so that is to be the handler's own.
func (a *attempt) perform(handler Work, end func(*result)) {
	var output []byte
	var err error = panicked{"the handler ended its goroutine, by runtime.Goexit or panic(nil)"}
	var trace string
	defer func() {
		if value := recover(); value != nil {
			err, trace = panicked{value}, string(debug.Stack())
		}
		end(a.outcome(output, err, trace))
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
func (a *attempt) outcome(output []byte, err error, trace string) (out *result) {
	defer func() { // an error can panic when it is asked what it is
		if recover() != nil {
			out = a.failure("the handler failed with an error that panics when it is shown", "panic")
		}
	}()
	reason := a.cancelledBecause()
	var end *ending
	switch {
	case reason == ErrLost:
		return nil
	case err == nil && a.isCompleted():
		return nil
	case err == nil:
		out = a.result("complete")
		if string(output) != "null" {
			out.Output = output
		}
		return out
	case errors.As(err, new(invalidOutput)):
		return a.failure(fmt.Sprint(err), "invalid_output")
	case errors.As(err, &end):
		return a.ended(end, err)
	case reason == ErrTimeout:
		return a.timeout()
	case reason != nil: // the server makes the job cancelled, where somebody has cancelled it
		return a.result("release")
	}
	out = a.failed(err)
	if trace != "" {
		out.Details["trace"] = storableEnd(trace)
	}
	return out
}

func (a *attempt) ended(end *ending, err error) (out *result) {
	delay := end.delay.Seconds()
	if delay < 0 {
		delay = 0
	}
	switch end.do {
	case "snooze":
		out = a.result("snooze")
		out.Delay = &delay
	case "cancel":
		out = a.result("cancel")
		out.Reason = storable(end.Error())
	case "discard":
		out = a.failed(err)
		out.Retryable = new(bool)
	default:
		out = a.failed(err)
		out.RetryIn = &delay
	}
	return out
}

// failed is the result of a handler that failed with this error.
func (a *attempt) failed(err error) *result {
	name := typeOf(err)
	// fmt shows also an error whose method panics.
	text := fmt.Sprint(err)
	if text == "" {
		text = name
	}
	out := a.failure(text, name)
	if code := sqlState(err); code != "" {
		out.Details["code"] = storable(code)
	}
	return out
}

// panicked is what a handler panicked with.
type panicked struct{ value any }

func (p panicked) Error() string { return fmt.Sprint(p.value) }
func (p panicked) Unwrap() error {
	err, _ := p.value.(error)
	return err
}

// invalidOutput is why something that a handler returned cannot be written as JSON.
type invalidOutput struct{ error }

// typeOf is the name of an error's type, which policies know it by. What only wraps does not count.
func typeOf(err error) string {
	for {
		inner := errors.Unwrap(err)
		name := strings.TrimPrefix(fmt.Sprintf("%T", err), "*")
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
		err = inner
	}
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

// storable is a text as the database can hold it, cut at its end.
func storable(text string) string {
	if len(text) > maxText*utf8.UTFMax { // not all of 100 MB is to be looked at
		text = text[:maxText*utf8.UTFMax]
	}
	text = valid(text)
	count := 0
	for at := range text {
		if count == maxText {
			return text[:at]
		}
		count++
	}
	return text
}

// storableEnd is the end of a text as the database can hold it.
func storableEnd(text string) string {
	if len(text) > maxText*utf8.UTFMax {
		text = text[len(text)-maxText*utf8.UTFMax:]
	}
	runes := []rune(valid(text))
	if len(runes) > maxText {
		runes = runes[len(runes)-maxText:]
	}
	return string(runes)
}

func valid(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// maxOutput is how many bytes of JSON Postgres takes in one message, with room for what is around.
const maxOutput = 1<<30 - 1<<20

// encode writes a value as JSON; whatever its methods do, there is an answer.
func encode(value any) (encoded []byte, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			encoded, err = nil, fmt.Errorf("writing it as JSON panicked: %v", panicked)
		}
	}()
	encoded, err = json.Marshal(value)
	if err == nil && len(encoded) > maxOutput {
		return nil, fmt.Errorf("it is %d bytes of JSON, at most %d", len(encoded), maxOutput)
	}
	if err == nil && !json.Valid(encoded) { // nested deeper than encoding/json reads
		return nil, errors.New("its JSON is nested too deeply")
	}
	return encoded, err
}

// nullable is JSON as an argument of a statement; null is SQL's.
func nullable(encoded []byte) any {
	if string(encoded) == "null" {
		return nil
	}
	return string(encoded)
}
