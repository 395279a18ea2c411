package jobs

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// minPause is how long to wait before a call is repeated; it is doubled up to maxPause.
	minPause = 100 * time.Millisecond
	maxPause = 10 * time.Second
	// patience is how long a call may take that does not wait for something. Without it a network
	// that is gone silently would hold the call for as long as the system's timeouts.
	patience = 5 * time.Minute
)

// columns scans the columns of a row, as [sql.Rows.Scan] does.
type columns = func(into ...any) error

// link is one connection of a worker. It is made again when it breaks.
type link struct {
	worker   *Worker
	what     string
	turn     chan struct{} // has an element while somebody uses the connection
	conn     *sql.Conn
	prepared map[string]*sql.Stmt
}

// do makes a call, and repeats it until it succeeds, is refused, or ctx is done. The call itself
// ends after limit and not with ctx. One without a limit waits for something: it ends with ctx, and
// is not repeated, as who waits has to look whatever ended it.
//
// A call with a flag isFailing is refused only for a value. The flag is up while it is repeated.
func (l *link) do(ctx context.Context, limit time.Duration, isFailing *atomic.Bool, call func(context.Context) error) error {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for pause := minPause; ; pause = least(2*pause, maxPause) {
		err := l.once(ctx, limit, call)
		isRepeated := err != nil && (l.conn == nil || isPassing(err) || isFailing != nil && !isOfValue(err))
		if isFailing != nil {
			isFailing.Store(isRepeated)
		}
		if !isRepeated {
			return err
		}
		if ctx.Err() == nil {
			l.worker.options.Log.Warn("a call failed and will be repeated", "connection", l.what, "error", err)
		}
		if !sleep(ctx, pause) || limit == 0 {
			return ctx.Err()
		}
	}
}

func (l *link) once(ctx context.Context, limit time.Duration, call func(context.Context) error) (err error) {
	if l.conn == nil {
		connecting, cancel := context.WithTimeout(ctx, maxPause)
		defer cancel()
		if l.conn, err = l.worker.db.Conn(connecting); err != nil {
			return err
		}
		l.prepared = map[string]*sql.Stmt{}
	}
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.Background(), limit)
		defer cancel()
	}
	err = call(ctx)
	if ctx.Err() != nil && limit == 0 {
		// The driver's request to cancel the call may be under way yet, and the program may end
		// next. PgBouncer 1.18 dies of a request that is cut off.
		time.Sleep(100 * time.Millisecond)
	}
	if isBroken(err) {
		l.drop()
	}
	return err
}

// value makes a call that answers with one value, or with none.
func (l *link) value(ctx context.Context, limit time.Duration, answer any, call string, args ...any) error {
	return l.do(ctx, limit, nil, func(ctx context.Context) error {
		return l.query(ctx, func(columns columns) error { return columns(answer) }, call, args...)
	})
}

// query makes a call, within a function that do has called, and scans each row of the answer.
func (l *link) query(ctx context.Context, scan func(columns) error, call string, args ...any) (err error) {
	query := func(args ...any) (*sql.Rows, error) { return l.conn.QueryContext(ctx, call, args...) }
	if !l.worker.options.NoPrepare {
		statement := l.prepared[call]
		if statement == nil {
			if statement, err = l.conn.PrepareContext(ctx, call); err != nil {
				return err
			}
			l.prepared[call] = statement
		}
		query = func(args ...any) (*sql.Rows, error) { return statement.QueryContext(ctx, args...) }
	}
	rows, err := query(args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// drop ends the connection, which is not for the pool: it is broken, or has prepared statements.
func (l *link) drop() {
	if l.conn != nil {
		_ = l.conn.Raw(func(any) error { return driver.ErrBadConn })
		l.conn = nil
	}
}

func newLink(worker *Worker, what string) *link {
	return &link{worker: worker, what: what, turn: make(chan struct{}, 1)}
}

// close ends the connection, once no call is under way.
func (l *link) close() {
	go func() {
		l.turn <- struct{}{}
		l.drop()
	}()
}

// isBroken is whether an error is that of the connection, or of a server that is a standby by now.
// Those of the connection have no SQLSTATE.
func isBroken(err error) bool {
	state := sqlState(err)
	return err != nil && (state == "" || state == "25006" || state == "57014" ||
		strings.HasPrefix(state, "08") || strings.HasPrefix(state, "57P0"))
}

// isPassing is whether a call may succeed that is repeated.
func isPassing(err error) bool {
	state := sqlState(err)
	return isBroken(err) || state == "40001" || state == "40P01" || state == "55P03"
}

// isOfValue is whether an error is that of a value that the database cannot hold.
func isOfValue(err error) bool {
	state := sqlState(err)
	return strings.HasPrefix(state, "22") || strings.HasPrefix(state, "54")
}

// sleep sleeps for about as long, 25 % either way, so that workers do not come all at once. It is
// false where ctx ended it.
func sleep(ctx context.Context, pause time.Duration) bool {
	chance := float64(time.Now().Nanosecond()/1000%1000) / 1000
	select {
	case <-time.After(time.Duration(float64(pause) * (0.75 + chance/2))):
		return true
	case <-ctx.Done():
		return false
	}
}

func least(a, b time.Duration) time.Duration {
	if a < b {
		return a
	}
	return b
}
