package jobs

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.org/jobs/internal/database"
)

// session is a connection of a worker. A call under way has it to itself.
type session struct {
	call database.Call
	end  func() // at once, also during a call that was abandoned
}

// connector makes a session.
type connector func(context.Context) (*session, error)

// newSession returns a session, or ends it if the caller has given up.
func newSession(ctx context.Context, conn any, end func(), err error) (*session, error) {
	if err = cmp.Or(err, ctx.Err()); err != nil {
		end()
		return nil, err
	}
	call, err := database.Of(conn)
	return &session{call, end}, err
}

// pgxConnector connects as a pool of pgx does, but beside it.
func pgxConnector(config *pgxpool.Config, noPrepare bool) connector {
	return func(ctx context.Context) (*session, error) {
		config := config.Copy()
		own := config.ConnConfig
		if noPrepare {
			own.DefaultQueryExecMode = pgx.QueryExecModeExec
		}
		if config.BeforeConnect != nil {
			if err := config.BeforeConnect(ctx, own); err != nil {
				return nil, err
			}
		}
		conn, err := pgx.ConnectConfig(ctx, own)
		if err != nil {
			mayLackTLS := slices.ContainsFunc(own.Fallbacks, func(other *pgconn.FallbackConfig) bool { return other.TLSConfig == nil })
			if own.TLSConfig != nil && !mayLackTLS && strings.Contains(err.Error(), "server refused TLS connection") {
				err = fmt.Errorf("%w: %w", database.ErrNoTLS, err)
			}
			return nil, err
		}
		if config.AfterConnect != nil {
			err = config.AfterConnect(ctx, conn)
		}
		return newSession(ctx, conn, func() { _ = conn.PgConn().Conn().Close() }, err)
	}
}

// sqlConnector takes connections out of a pool of database/sql.
//
// At the end a connection cannot return to the pool: it is broken, or has prepared statements. An
// abandoned call still has it, and its place in the pool. It ends when the driver's connection is
// closed, and database/sql waits for it.
func sqlConnector(db *sql.DB, noPrepare bool) connector {
	return func(ctx context.Context) (*session, error) {
		conn, err := db.Conn(ctx)
		// What the errors of lib/pq quote may have the password.
		if unparsed := (*url.Error)(nil); errors.As(err, &unparsed) && unparsed.Op == "parse" {
			err = &url.Error{Op: "parse", URL: "the URL", Err: errors.New("it is malformed")}
		} else if err != nil && strings.HasPrefix(err.Error(), `missing "=" after `) {
			err = errors.New(`missing "=" after ".." in the connection string`)
		}
		if err != nil {
			return nil, err
		}
		var driversOwn driver.Conn
		_ = conn.Raw(func(own any) error { driversOwn = own.(driver.Conn); return nil })
		end := func() {
			_ = driversOwn.Close()
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
		if noPrepare {
			return newSession(ctx, conn, end, nil)
		}
		return newSession(ctx, prepared{conn, map[string]*sql.Stmt{}}, end, nil)
	}
}

// prepared is a connection that prepares its statements.
type prepared struct {
	conn       *sql.Conn
	statements map[string]*sql.Stmt
}

func (p prepared) QueryContext(ctx context.Context, statement string, args ...any) (_ *sql.Rows, err error) {
	if p.statements[statement] == nil {
		if p.statements[statement], err = p.conn.PrepareContext(ctx, statement); err != nil {
			return nil, err
		}
	}
	return p.statements[statement].QueryContext(ctx, args...)
}
