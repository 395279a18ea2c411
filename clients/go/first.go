package jobs

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"

	"github.com/jackc/pgx/v5/pgconn"

	"example.org/jobs/internal/database"
)

// needs is the oldest version of the extension that has what this library calls.
const needs = "0.1.0"

// ofURL are the SQLSTATEs of a server that refuses a parameter of the URL.
var ofURL = regexp.MustCompile(`^(22023|42601|42704|55P02)$`)

// unparsed are the errors of lib/pq for a URL or connection string that it cannot parse. They have
// no type.
var unparsed = regexp.MustCompile(`^(invalid connection protocol|missing ("="|character) after|unterminated quoted` +
	`|pq: wrong value for|pq: unsupported (client_encoding|datestyle))`)

// isOfURL reports whether the driver or the server refuses the URL.
func isOfURL(err error) bool {
	var connecting unconnected
	var ofPgx *pgconn.ParseConfigError
	var ofPq *url.Error
	return errors.As(err, &connecting) && (ofURL.MatchString(sqlState(err)) || errors.As(err, &ofPgx) ||
		errors.As(err, &ofPq) && ofPq.Op == "parse" || unparsed.MatchString(connecting.error.Error()))
}

// fatal returns the error that ends the worker, with a hint if there is one, or nil. Once a
// connection has worked, no error does.
func (l *link) fatal(err error) error {
	if err == nil || l.hasWorked.Load() {
		return nil
	}
	hint := database.Hint(err, "grant_worker", l.cell.server.User)
	if hint == "" && !isOfURL(err) {
		return nil
	}
	return database.Explain(err, hint)
}

// server is what the first call learns of it.
type server struct {
	Database, User, Host, Version string
	IsOld                         bool
}

// meet asks for the extension before the first beat, and returns an error if it is missing or too
// old.
func (c *cell) meet(ctx context.Context) error {
	found, err := query(ctx, c.control, database.JSON[server], `SELECT json_build_object('Database', current_database(),
		'User', session_user, 'Host', coalesce(host(inet_server_addr()), 'local'), 'Version', e.extversion,
		'IsOld', string_to_array(substring(e.extversion, '[0-9.]*'), '.')::int[] < string_to_array($1, '.')::int[])
		FROM (SELECT max(extversion) AS extversion FROM pg_extension WHERE extname = 'jobs') e`, needs)
	if err != nil {
		return err
	}
	c.control.hasWorked.Store(false) // that needs no extension
	c.server = found[0]
	switch version := c.server.Version; {
	case version == "":
		return database.Explain(fmt.Errorf("the database %q does not have the extension jobs", c.server.Database), database.HintExtension)
	case c.server.IsOld:
		return database.Explain(fmt.Errorf("the extension jobs has version %s, and this library needs %s", version, needs),
			"Run ALTER EXTENSION jobs UPDATE, after installing it on the server.")
	}
	return nil
}
