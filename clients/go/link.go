package jobs

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
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

// link is one connection of a worker. It is made again when it breaks.
type link struct {
	db   *sql.DB
	log  Logger
	what string
	turn chan struct{} // has an element while somebody uses the connection
	conn *sql.Conn
}

func newLink(db *sql.DB, log Logger, what string) *link {
	return &link{db: db, log: log, what: what, turn: make(chan struct{}, 1)}
}

// do makes a call, and repeats it until it succeeds, is refused, or ctx is done. The call itself
// ends after limit and not with ctx. One without a limit waits for something: it ends with ctx, and
// is not repeated, as who waits has to look whatever ended it.
func (l *link) do(ctx context.Context, limit time.Duration, call func(context.Context, *sql.Conn) error) error {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for pause := minPause; ; pause *= 2 {
		if pause > maxPause {
			pause = maxPause
		}
		err := l.once(ctx, limit, call)
		if err == nil || !isPassing(err) {
			return err
		}
		if ctx.Err() == nil {
			l.log.Warn("a call failed and will be repeated", "connection", l.what, "error", err)
		}
		if !sleep(ctx, pause) {
			return ctx.Err()
		}
		if limit == 0 {
			return nil
		}
	}
}

func (l *link) once(ctx context.Context, limit time.Duration, call func(context.Context, *sql.Conn) error) (err error) {
	if l.conn == nil {
		connecting, cancel := context.WithTimeout(ctx, maxPause)
		l.conn, err = l.db.Conn(connecting)
		cancel()
		if err != nil {
			return notConnected{err}
		}
	}
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.Background(), limit)
		defer cancel()
	}
	err = call(ctx, l.conn)
	if ctx.Err() != nil && limit == 0 {
		// The driver's request to cancel the call may be under way yet, and the program may end
		// next. PgBouncer 1.18 dies of a request that is cut off.
		time.Sleep(100 * time.Millisecond)
	}
	if state := sqlState(err); isPassing(err) && state != "40001" && state != "40P01" && state != "55P03" {
		// It is broken, or leads to a server that is a standby by now: not for the pool.
		_ = l.conn.Raw(func(any) error { return driver.ErrBadConn })
		l.conn = nil
	}
	return err
}

// close gives the connection back, unless a call is still under way.
func (l *link) close() {
	select {
	case l.turn <- struct{}{}:
		if l.conn != nil {
			_ = l.conn.Close()
		}
	default:
	}
}

// notConnected is an error of connecting. Whatever it is, the next time may be better.
type notConnected struct{ error }

// isPassing is whether a call may succeed that is repeated. Errors without an SQLSTATE are those of
// the connection.
func isPassing(err error) bool {
	if err == nil || errors.As(err, new(notConnected)) {
		return err != nil
	}
	switch state := sqlState(err); state {
	case "25006", "40P01", "40001", "55P03", "57014", "57P01", "57P02", "57P03", "57P04", "57P05", "":
		return true
	default:
		return strings.HasPrefix(state, "08")
	}
}

// sleep sleeps for about as long, 25 % either way, so that workers do not come all at once. It is
// false where ctx ended it.
func sleep(ctx context.Context, pause time.Duration) bool {
	chance := float64(time.Now().Nanosecond()/1000%1000) / 1000
	timer := time.NewTimer(time.Duration(float64(pause) * (0.75 + chance/2)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
