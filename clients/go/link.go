package jobs

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"time"
)

// patience is how long a call may go without an answer: the network itself can take much longer to
// detect a dead peer. Connecting may take maxConnect at most. maxPause is the longest pause before
// a repetition.
const patience, maxConnect, maxPause = 120 * time.Second, 30 * time.Second, 10 * time.Second

// backOff is the pause before the n-th repetition, from 0.
func backOff(n int) time.Duration { return least(100*time.Millisecond<<least(n, 7), maxPause) }

// scan reads a row, whose columns are scanned by [sql.Rows.Scan].
type scan[T any] func(columns func(into ...any) error) (T, error)

// link is one connection of a worker. It reconnects when it breaks.
type link struct {
	worker    *Worker
	patience  time.Duration // after which without an answer the connection counts as broken
	isFailing atomic.Bool   // the latest call has failed and is to be repeated
	turn      chan struct{} // full during a call, and once the worker has ended
	session   *session      // nil until connected
}

// session is a connection with its prepared statements. A call under way has both to itself.
type session struct {
	conn     *sql.Conn
	driver   driver.Conn // the driver's own
	prepared map[string]*sql.Stmt
}

// query makes a call, and repeats it until it succeeds, is refused, or ctx is done. A call under
// way does not end with ctx. The answer has a value of scan for each row.
func query[T any](ctx context.Context, l *link, scan scan[T], call string, args ...any) ([]T, error) {
	for failures := 0; ctx.Err() == nil; failures++ {
		answer, err := try(ctx, context.Background(), l, scan, call, args)
		l.isFailing.Store(ctx.Err() == nil && is(err, passing))
		if err == ErrLost || ctx.Err() != nil || !is(err, passing) {
			return answer, err
		}
		l.worker.options.Log.Warn("call failed, retrying", "error", err)
		l.worker.pause(ctx, backOff(failures))
	}
	return nil, ctx.Err()
}

// wait makes a call that waits, and ends it with ctx. It is not repeated, since the caller looks
// for work after it anyway.
func (l *link) wait(ctx context.Context, call string, args ...any) {
	switch _, err := try(ctx, ctx, l, value[any], call, args); {
	case ctx.Err() != nil:
		// The driver's cancel request may still be under way, and the program may end next. PgBouncer
		// 1.18 crashes on a request that is cut off.
		time.Sleep(100 * time.Millisecond)
	case err == nil, sqlState(err) == "57014": // such as a statement_timeout
	case is(err, passing):
		l.worker.options.Log.Warn("wait failed, retrying", "error", err)
		l.worker.pause(ctx, backOff(0))
	default:
		l.worker.options.Log.Error("wait refused, retrying", "error", err)
		l.worker.pause(ctx, least(l.worker.pace(), maxPause/4))
	}
}

// try makes a call once, which ends with until. If necessary it connects first, until ctx is done.
// After the end of the worker its jobs are lost.
func try[T any](ctx, until context.Context, l *link, scan scan[T], call string, args []any) (answer []T, err error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-l.worker.done:
		return nil, ErrLost
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s := l.session
	if s == nil {
		if s, err = within(ctx, least(l.patience, maxConnect), l.worker.connect); err != nil {
			return nil, fmt.Errorf("no connection: %v", err) // not wrapped: it passes, whatever its SQLSTATE
		}
	}
	answer, err = within(until, l.patience, func(ctx context.Context) ([]T, error) {
		return scan.all(s.rows(ctx, l.worker.options.NoPrepare, call, args))
	})
	if l.session = s; is(err, broken) {
		l.session = nil
		go s.end()
	}
	return answer, err
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

// connect makes a session.
func (w *Worker) connect(ctx context.Context) (s *session, err error) {
	s = &session{prepared: map[string]*sql.Stmt{}}
	if s.conn, err = w.db.Conn(ctx); err == nil {
		_ = s.conn.Raw(func(own any) error { s.driver = own.(driver.Conn); return nil })
		if err = ctx.Err(); err != nil { // the caller has given up
			s.end()
		}
	}
	return s, err
}

// end ends the connection. It cannot return to the pool: it is broken, or has prepared statements.
//
// An abandoned call still has the connection and its place in the pool. It ends when the driver's
// connection is closed, and database/sql waits for it.
func (s *session) end() {
	_ = s.driver.Close()
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
}

// rows makes the call itself.
func (s *session) rows(ctx context.Context, noPrepare bool, call string, args []any) (rows *sql.Rows, err error) {
	if noPrepare {
		return s.conn.QueryContext(ctx, call, args...)
	} else if s.prepared[call] == nil {
		if s.prepared[call], err = s.conn.PrepareContext(ctx, call); err != nil {
			return nil, err
		}
	}
	return s.prepared[call].QueryContext(ctx, args...)
}

// all returns the value of scan for each row, up to an error.
func (scan scan[T]) all(rows *sql.Rows, err error) (answer []T, _ error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		row, err := scan(rows.Scan)
		if err != nil {
			return nil, err
		}
		answer = append(answer, row)
	}
	return answer, rows.Err()
}

// value scans a row that has one column.
func value[T any](columns func(into ...any) error) (value T, err error) {
	err = columns(&value)
	return value, err
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
var passing = regexp.MustCompile(broken.String() + `|^(40001|40P01|55P03|57014)$`)

// is reports whether an error has one of these SQLSTATEs.
func is(err error, of *regexp.Regexp) bool { return err != nil && of.MatchString(sqlState(err)) }

// ofValue are the SQLSTATEs of a value that the database cannot store. XX000 is the code of every
// internal error. The text, which is never translated, says that the value needs too much memory.
var ofValue = regexp.MustCompile(`^(22|54|(?s:XX000.* invalid memory alloc request size))`)

// isOfValue reports whether the database cannot store a value.
func isOfValue(err error) bool { return ofValue.MatchString(sqlState(err) + fmt.Sprint(" ", err)) }

// array formats an array as an argument of a statement.
func array[T any](values []T) string {
	quoted := make([]string, len(values))
	for i, value := range values {
		quoted[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(fmt.Sprint(value)) + `"`
	}
	return "{" + strings.Join(quoted, ",") + "}"
}

func least[T int | time.Duration](a, b T) T {
	if a < b {
		return a
	}
	return b
}
