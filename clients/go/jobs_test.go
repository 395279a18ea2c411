package jobs

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

type declined struct{ Code string }

func (*declined) Error() string { return "declined" }

type stated struct{ error }

func (stated) SQLState() string { return "40001" }

// attemptOf is an attempt that nobody sends anything of.
func attemptOf() *attempt {
	a := &attempt{row: &JobRow{ID: 7}, token: 8}
	a.ctx, a.cancelCtx = context.WithCancel(context.Background())
	a.row.attempt = a
	return a
}

func TestTypeOfAnError(t *testing.T) {
	for want, err := range map[string]error{
		"jobs.declined":      &declined{},
		"errors.errorString": errors.New("x"),
		"panic":              panicked{value: 42},
	} {
		for _, wrapped := range []error{err, fmt.Errorf("a: %w", err), Discard(err), fmt.Errorf("a: %w", RetryIn(0, err))} {
			if got := typeOf(wrapped); got != want {
				t.Errorf("%v is of type %s, not %s", wrapped, got, want)
			}
		}
	}
	if got := typeOf(panicked{value: fmt.Errorf("a: %w", &declined{})}); got != "jobs.declined" {
		t.Errorf("a panic with an error is of type %s", got)
	}
}

func TestSQLStateOfAnyDriver(t *testing.T) {
	for _, one := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{errors.New("x"), ""},
		{stated{errors.New("x")}, "40001"},
		{fmt.Errorf("a: %w", stated{errors.New("x")}), "40001"},
		{&declined{"23505"}, "23505"},
		{fmt.Errorf("a: %w", &declined{"23505"}), "23505"},
		{&declined{"no state"}, ""},
		{(*declined)(nil), ""},
		{notConnected{stated{errors.New("x")}}, ""},
	} {
		if got := sqlState(one.err); got != one.want {
			t.Errorf("%#v has SQLSTATE %q, not %q", one.err, got, one.want)
		}
	}
	if !isPassing(notConnected{stated{errors.New("wrong password")}}) || !isPassing(driver.ErrBadConn) || isPassing(nil) {
		t.Error("what passes is not what passes")
	}
}

func TestStorableTexts(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		"ü\x00b":                    "ü\uFFFDb",
		"a\xed\xa0\x80b":            "a\uFFFDb",
		strings.Repeat("🦀", 10_001): strings.Repeat("🦀", 10_000),
		strings.Repeat("a", 99_999): strings.Repeat("a", 10_000),
	} {
		if got := storable(text); got != want {
			t.Errorf("%.20q.. is stored as %.20q..", text, got)
		}
	}
}

func TestEndings(t *testing.T) {
	a := attemptOf()
	for _, one := range []struct {
		err  error
		want object
	}{
		{Snooze(time.Minute), object{"do": "snooze", "delay": 60.0}},
		{Snooze(-time.Minute), object{"do": "snooze", "delay": 0.0}},
		{fmt.Errorf("a: %w", Snooze(time.Second)), object{"do": "snooze", "delay": 1.0}},
		{Cancel("c\x00"), object{"do": "cancel", "reason": "c\uFFFD"}},
		{fmt.Errorf("a: %w", Discard(errors.New("d"))), object{"do": "fail", "error": "a: d", "retryable": false,
			"details": object{"type": "errors.errorString"}}},
		{RetryIn(time.Second, &declined{"23505"}), object{"do": "fail", "error": "declined", "retry_in": 1.0,
			"details": object{"type": "jobs.declined", "code": "23505"}}},
		{errors.New(""), object{"do": "fail", "error": "errors.errorString", "details": object{"type": "errors.errorString"}}},
		{invalidOutput{errors.New("o")}, object{"do": "fail", "error": "o", "details": object{"type": "invalid_output"}}},
	} {
		one.want["id"], one.want["token"] = int64(7), int64(8)
		if got := a.outcome(nil, one.err); !reflect.DeepEqual(got, one.want) {
			t.Errorf("%v: %v, not %v", one.err, got, one.want)
		}
	}
	if got := a.outcome(nil, Discard(nil)); got["retryable"] != false {
		t.Errorf("Discard(nil): %v", got)
	}
}

func TestAHandlerThatWasCancelled(t *testing.T) {
	for reason, want := range map[error]any{ErrTimeout: "fail", ErrCancelled: "release", ErrStopping: "release", ErrLost: nil} {
		a := attemptOf()
		if a.row.CancelledBecause() != nil {
			t.Error("it is not cancelled yet")
		}
		a.cancel(reason)
		a.cancel(ErrLost)
		if got := a.row.CancelledBecause(); got != reason || a.ctx.Err() == nil {
			t.Errorf("it was cancelled because of %v, not %v", got, reason)
		}
		got := a.outcome(nil, a.ctx.Err())
		if want == nil && got != nil || want != nil && got["do"] != want {
			t.Errorf("%v: %v, not %v", reason, got, want)
		}
	}
}

func TestAJobWithoutAWorker(t *testing.T) {
	job := &Job[declined]{JobRow: &JobRow{}}
	ctx := context.Background()
	if job.Progress(ctx, 1) != nil || job.Complete(ctx, nil, 1) != nil || job.CancelledBecause() != nil {
		t.Error("a handler cannot be called by hand")
	}
	if job.Progress(ctx, math.NaN()) == nil {
		t.Error("NaN is no progress")
	}
}

func TestUniqueOptions(t *testing.T) {
	for want, unique := range map[string]Unique{
		`{}`:                                 {},
		`{"by_args":true,"by_period":86400}`: {ByArgs: true, ByPeriod: 24 * time.Hour},
		`{"by_args":["a"],"wait":false,"on_conflict":{"update":{"*":["args"]}},"hold_for":0.5}`: {
			ByArgs: []string{"a"}, NoWait: true, HoldFor: time.Second / 2,
			OnConflict: map[string]any{"update": map[State][]string{"*": {"args"}}}},
	} {
		got, err := json.Marshal(unique)
		var gotValue, wantValue any
		_ = json.Unmarshal(got, &gotValue)
		_ = json.Unmarshal([]byte(want), &wantValue)
		if err != nil || !reflect.DeepEqual(gotValue, wantValue) {
			t.Errorf("%s, not %s (%v)", got, want, err)
		}
	}
}

func TestArraysAsArguments(t *testing.T) {
	if got := array([]string{`a b`, `c"\`, ``}); got != `{"a b","c\"\\",""}` {
		t.Error(got)
	}
	if got := numbers([]int64{1, -2}) + numbers(nil); got != "{1,-2}{}" {
		t.Error(got)
	}
}

func TestQueuesShareThePlaces(t *testing.T) {
	w := NewWorker(sql.OpenDB(nil), Options{Queues: []string{"a", "b"}, Weights: map[string]int{"a": 3}, Concurrency: 8})
	for _, one := range []struct {
		a, b   int
		queues string
		places int
	}{
		{0, 0, `{"a","b"}`, 6},
		{6, 0, `{"b","a"}`, 2},
		{6, 1, `{"b","a"}`, 1},
		{6, 2, ``, 0},
		{0, 7, `{"a","b"}`, 1},
		{2, 2, `{"a","b"}`, 4},
		{7, 0, `{"b","a"}`, 1},
	} {
		w.running["a"], w.running["b"] = one.a, one.b
		if queues, places := w.places(); queues != one.queues || places != one.places {
			t.Errorf("with %d and %d running it fetches %d of %s", one.a, one.b, places, queues)
		}
	}
	w.running["a"], w.running["b"], w.command = 0, 0, "quiet"
	if _, places := w.places(); places != 0 {
		t.Error("a quiet worker fetches")
	}
}

func TestOptionsThatCannotBe(t *testing.T) {
	if NewWorker(sql.OpenDB(nil), Options{}).Start() == nil {
		t.Error("a worker without handlers starts")
	}
	if err := NewWorker(sql.OpenDB(nil), Options{Info: map[string]any{"f": func() {}}}).Start(); err == nil {
		t.Error("info that is no JSON is taken")
	}
	db := sql.OpenDB(nil)
	db.SetMaxOpenConns(3)
	if err := NewWorker(db, Options{}).Start(); err == nil || !strings.Contains(err.Error(), "three connections") {
		t.Errorf("a pool of three: %v", err)
	}
	if err := NewWorker(sql.OpenDB(nil), Options{}).Stop(); err != nil {
		t.Errorf("a worker that was not started stops: %v", err)
	}
}
