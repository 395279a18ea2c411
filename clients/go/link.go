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
	// turn has an element while somebody uses the connection.
	turn chan struct{}
	conn *sql.Conn
}

func newLink(db *sql.DB, log Logger, what string) *link {
	return &link{db: db, log: log, what: what, turn: make(chan struct{}, 1)}
}

// do makes a call, and repeats it until it succeeds, is refused, or ctx is done. What the call
// itself is cancelled by is its own affair.
func (l *link) do(ctx context.Context, call func(*sql.Conn) error) error {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for pause := minPause; ; pause = longer(pause) {
		err := l.once(ctx, call)
		if err == nil || !isPassing(err) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		l.log.Warn("a call failed and will be repeated", "connection", l.what, "error", err)
		if !sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

func (l *link) once(ctx context.Context, call func(*sql.Conn) error) error {
	if l.conn == nil {
		conn, err := l.db.Conn(ctx)
		if err != nil {
			return notConnected{err}
		}
		l.conn = conn
	}
	err := call(l.conn)
	if err != nil && isBroken(err) {
		// The pool would give it to somebody else.
		_ = l.conn.Raw(func(any) error { return driver.ErrBadConn })
		l.conn = nil
	}
	return err
}

// close gives the connection back.
func (l *link) close() {
	select {
	case l.turn <- struct{}{}:
		if l.conn != nil {
			_ = l.conn.Close()
			l.conn = nil
		}
		<-l.turn
	default: // a call is still under way
	}
}

// notConnected is an error of connecting. Whatever it is, the next one may succeed.
type notConnected struct{ error }

func (e notConnected) Unwrap() error { return e.error }

// isPassing is whether a call may succeed that is repeated. Errors without an SQLSTATE are those of
// the connection.
func isPassing(err error) bool {
	switch state := sqlState(err); state {
	case "25006", "40P01", "40001", "55P03", "57014", "57P01", "57P02", "57P03", "57P04", "57P05", "":
		return true
	default:
		return strings.HasPrefix(state, "08") || errors.As(err, new(notConnected))
	}
}

// isBroken is whether a connection is to be dropped after an error: it may be broken, or lead to a
// server that is a standby by now.
func isBroken(err error) bool {
	switch sqlState(err) {
	case "40P01", "40001", "55P03":
		return false
	}
	return isPassing(err)
}

func longer(pause time.Duration) time.Duration {
	if pause *= 2; pause < maxPause {
		return pause
	}
	return maxPause
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
