package jobs

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"math"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// patience is how long a call may take that does not wait for something; a repeated one has longer.
// What hangs must not cost a job its lease.
const patience = 30 * time.Second

// maxPause is how long to wait at most before something is repeated.
const maxPause = 10 * time.Second

// backOff is how long to wait before what is repeated for the n-th time, from 0.
func backOff(n int) time.Duration { return least(100*time.Millisecond<<least(n, 7), maxPause) }

// scan makes something of a row, whose columns are scanned by [sql.Rows.Scan].
type scan[T any] func(columns func(into ...any) error) (T, error)

// link is one connection of a worker. It is made again when it breaks.
type link struct {
	worker    *Worker
	what      string
	patience  time.Duration
	isFailing atomic.Bool // the latest call has failed and is to be repeated
	turn      sync.Mutex  // is held while a call is under way
	conn      *sql.Conn
	prepared  map[string]*sql.Stmt
}

func newLink(w *Worker, what string) *link { return &link{worker: w, what: what, patience: patience} }

// query makes a call, and repeats it until it succeeds, is refused, or ctx is done. A call that is
// under way does not end with ctx. The answer is what scan makes of each row.
func query[T any](ctx context.Context, l *link, scan scan[T], call string, args ...any) ([]T, error) {
	for failures := 0; ctx.Err() == nil; failures++ {
		limited, cancel := context.WithTimeout(context.Background(), l.patience<<least(failures, 4))
		answer, err := try(ctx, limited, l, scan, call, args)
		cancel()
		l.isFailing.Store(is(err, passing))
		if !is(err, passing) {
			return answer, err
		}
		l.worker.options.Log.Warn("a call failed and will be repeated", "connection", l.what, "error", err)
		l.worker.pause(ctx, backOff(failures))
	}
	return nil, ctx.Err()
}

// wait makes a call that waits for something, and ends it with ctx. It is not repeated: who waits
// has to look, whatever ended it.
func (l *link) wait(ctx context.Context, call string, args ...any) {
	_, err := try(ctx, ctx, l, value[any], call, args)
	if ctx.Err() != nil {
		// The driver's request to cancel the call may be under way yet, and the program may end
		// next. PgBouncer 1.18 dies of a request that is cut off.
		time.Sleep(100 * time.Millisecond)
	} else if err != nil {
		l.worker.options.Log.Warn("a wait has failed", "connection", l.what, "error", err)
		l.worker.pause(ctx, backOff(0))
	}
}

// try makes a call once, which ends with limited. If need be it connects before, until ctx is done.
func try[T any](ctx, limited context.Context, l *link, scan scan[T], call string, args []any) (answer []T, err error) {
	l.turn.Lock()
	defer l.turn.Unlock()
	if l.conn == nil {
		connecting, cancel := context.WithTimeout(ctx, maxPause)
		defer cancel()
		if l.conn, err = l.worker.db.Conn(connecting); err != nil {
			return nil, fmt.Errorf("no connection: %v", err) // not wrapped: it passes, whatever its SQLSTATE
		}
		l.prepared = map[string]*sql.Stmt{}
	}
	rows, err := l.rows(limited, call, args)
	if err == nil {
		answer, err = all(rows, scan)
	}
	if is(err, broken) {
		l.drop()
	}
	return answer, err
}

// rows makes the call itself.
func (l *link) rows(ctx context.Context, call string, args []any) (rows *sql.Rows, err error) {
	if l.worker.options.NoPrepare {
		return l.conn.QueryContext(ctx, call, args...)
	}
	if l.prepared[call] == nil {
		if l.prepared[call], err = l.conn.PrepareContext(ctx, call); err != nil {
			return nil, err
		}
	}
	return l.prepared[call].QueryContext(ctx, args...)
}

// all is what scan makes of each row, up to an error.
func all[T any](rows *sql.Rows, scan scan[T]) (answer []T, err error) {
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

// drop ends the connection, which is not for the pool: it is broken, or has prepared statements.
func (l *link) drop() {
	if l.conn != nil {
		_ = l.conn.Raw(func(any) error { return driver.ErrBadConn })
		l.conn = nil
	}
}

// close ends the connection, once no call is under way.
func (l *link) close() {
	l.turn.Lock()
	l.drop()
}

// broken are the SQLSTATEs of a connection that is of no use any more, and of a server that is a
// standby by now. An error of the connection itself has none.
var broken = regexp.MustCompile(`^(|08...|57P0.|57014|25006)$`)

// passing are those after which a call may succeed that is repeated.
var passing = regexp.MustCompile(broken.String() + `|^(40001|40P01|55P03)$`)

// ofValue are those of a value that the database cannot hold.
var ofValue = regexp.MustCompile(`^(22|54)`)

// is says whether an error has one of these SQLSTATEs.
func is(err error, of *regexp.Regexp) bool { return err != nil && of.MatchString(sqlState(err)) }

// interval is a duration as an argument of a statement; a negative one is zero.
func interval(d time.Duration) string { return fmt.Sprintf("%.6f s", math.Max(0, d.Seconds())) }

// array is an array as an argument of a statement.
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
