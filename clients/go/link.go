package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"example.org/jobs/internal/database"
)

// patience is how long a call may go without an answer: the network itself can take much longer to
// detect a dead peer. Connecting may take maxConnect at most. maxPause is the longest pause before
// a repetition.
const patience, maxConnect, maxPause = 120 * time.Second, 30 * time.Second, 10 * time.Second

// backOff is the pause before the n-th repetition, from 0.
func backOff(n int) time.Duration { return min(100*time.Millisecond<<min(n, 7), maxPause) }

// scan reads a row.
type scan[T any] func(database.Columns) (T, error)

// link is one connection of a worker. It reconnects when it breaks.
type link struct {
	cell      *cell
	patience  time.Duration // after which without an answer the connection counts as broken
	failures  atomic.Int32  // how many calls in a row have failed and may be repeated
	hasWorked atomic.Bool   // a call has succeeded; until then some errors end the worker
	turn      chan struct{} // full during a call, and once the worker has ended
	session   *session      // nil until connected

	asked int    // how many jobs a fetch under way has asked for
	kind  string // of these, if the kind has a concurrency
}

func (c *cell) newLink(patience time.Duration) *link {
	return &link{cell: c, patience: patience, turn: make(chan struct{}, 1)}
}

// unconnected is the error of a connection that cannot be made. It passes, whatever its SQLSTATE.
type unconnected struct{ error }

func (u unconnected) Unwrap() error { return u.error }
func (u unconnected) Error() string { return "no connection: " + u.error.Error() }

// query makes a call, and repeats it until it succeeds, is refused, or ctx is done. A call under
// way does not end with ctx. The answer has a value of scan for each row.
func query[T any](ctx context.Context, l *link, scan scan[T], call string, args ...any) ([]T, error) {
	for ctx.Err() == nil {
		answer, err := try(ctx, context.Background(), l, scan, call, args)
		fatal := l.fatal(err)
		if fatal != nil || err == ErrLost || ctx.Err() != nil || !is(err, passing) {
			return answer, cmp.Or(fatal, err)
		}
		l.failed(ctx, "", err)
	}
	return nil, ctx.Err()
}

// failed logs a call that failed, and pauses before the next.
func (l *link) failed(ctx context.Context, call string, err error) {
	if is(err, passing) {
		l.cell.log().Warn("call failed, retrying", "error", oneLine(err))
		l.cell.pause(ctx, backOff(int(l.failures.Load())-1))
	} else {
		l.cell.log().Error(call+" refused, retrying", "error", oneLine(err))
		l.cell.pause(ctx, max(backOff(0), min(l.cell.pace(), maxPause/4)))
	}
}

// wait makes a call that waits, and ends it with ctx. It is not repeated, since the caller looks
// for work after it anyway.
func (l *link) wait(ctx context.Context, call string, args ...any) error {
	_, err := try(ctx, ctx, l, database.Value[any], call, args)
	switch fatal := l.fatal(err); {
	case ctx.Err() != nil:
		// The driver's cancel request may still be under way, and the program may end next. PgBouncer
		// 1.18 crashes on a request that is cut off.
		time.Sleep(100 * time.Millisecond)
	case fatal != nil:
		return fatal
	case err != nil && sqlState(err) != "57014": // such as a statement_timeout
		l.failed(ctx, "wait", err)
	}
	return nil
}

// try makes a call once, which ends with until. If necessary it connects first, until ctx is done.
// After the end of the worker its jobs are lost.
func try[T any](ctx, until context.Context, l *link, scan scan[T], call string, args []any) (answer []T, err error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-l.cell.done:
		return nil, ErrLost
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() {
		failures := int32(0)
		if is(err, passing) && until.Err() == nil {
			failures = l.failures.Load() + 1
		}
		if before := l.failures.Swap(failures); min(before, 1) != min(failures, 1) {
			l.cell.change(func() {}) // others may fetch what it has asked for
		}
	}()
	s := l.session
	if s == nil {
		if s, err = within(ctx, min(l.patience, maxConnect), l.cell.connect); err != nil {
			return nil, unconnected{err}
		}
	}
	answer, err = within(until, l.patience, func(ctx context.Context) (answer []T, err error) {
		err = s.call(ctx, database.Into(&answer, scan), call, args...)
		return answer, err
	})
	if l.session = s; is(err, broken) {
		l.session = nil
		go s.end()
	}
	if err == nil {
		l.hasWorked.Store(true)
	}
	return answer, database.Explain(err, "")
}

// within makes a call that ends with ctx or after limit. A call that has not ended a second later
// is abandoned: lib/pq waits forever on a silent network.
func within[T any](ctx context.Context, limit time.Duration, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	answers := make(chan func() (T, error), 2)
	go func() {
		defer cancel()
		answer, err := call(ctx)
		answers <- func() (T, error) { return answer, err }
	}()
	<-ctx.Done()
	silent := func() (none T, err error) {
		return none, fmt.Errorf("no answer from the database within %v s", limit.Seconds())
	}
	defer time.AfterFunc(time.Second, func() { answers <- silent }).Stop()
	return (<-answers)()
}

// close ends the connection once no call is under way. No other call starts after it.
func (l *link) close() {
	l.turn <- struct{}{}
	if l.session != nil {
		l.session.end()
	}
}

// broken are the SQLSTATEs of a connection that is unusable, and of a server that has become a
// standby. An error of the connection itself has none.
var broken = regexp.MustCompile(`^(|08...|57P0.|25006)$`)

// passing are the SQLSTATEs after which a repeated call may succeed.
var passing = regexp.MustCompile(broken.String() + `|^(40001|40P01|55P03|57014|JB001)$`)

// is reports whether an error has one of these SQLSTATEs.
func is(err error, of *regexp.Regexp) bool {
	return err != nil && (errors.As(err, &unconnected{}) || of.MatchString(sqlState(err)))
}

// ofValue are the SQLSTATEs of a value that the database cannot store. XX000 is the code of every
// internal error. The text, which is never translated, says that the value needs too much memory.
var ofValue = regexp.MustCompile(`^(22|54|(?s:XX000.* invalid memory alloc request size))`)

// isOfValue reports whether the database cannot store a value.
func isOfValue(err error) bool { return ofValue.MatchString(sqlState(err) + fmt.Sprint(" ", err)) }

// oneLine returns the text of an error in one line.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// array formats an array as an argument of a statement.
func array[T any](values []T) string {
	quoted := make([]string, len(values))
	for i, value := range values {
		quoted[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(fmt.Sprint(value)) + `"`
	}
	return "{" + strings.Join(quoted, ",") + "}"
}
