package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"example.org/jobs/internal/database"
)

// needs is the oldest version of the extension that has what this library calls.
const needs = "0.1.0"

// errNoTLS means that the client insists on TLS.
var errNoTLS = errors.New("the server has no TLS")

const hintExtension = "Check the database, or run CREATE EXTENSION jobs in it."

// hint returns how to mend an error that repeating the call does not mend, or "".
func hint(err error, grant, role string) string {
	var unknown *net.DNSError
	switch state, text := sqlState(err), fmt.Sprint(err); {
	case state == "3D000":
		return "Check the database in the URL."
	case state == "28000", state == "28P01":
		return "Check the user and the password in the URL."
	case state == "3F000", state == "42P01" && strings.Contains(text, "jobs."):
		return hintExtension
	case state == "42883":
		return "Run ALTER EXTENSION jobs UPDATE, after installing the version that the library needs on the server."
	case state == "42501":
		role = strings.ReplaceAll(cmp.Or(role, "ROLE"), "'", "''")
		return fmt.Sprintf("Ask an administrator to run SELECT jobs.%s('%s').", grant, role)
	case errors.As(err, &unknown) && unknown.IsNotFound:
		return "Check the host in the URL."
	case errors.Is(err, errNoTLS), state == "" && strings.Contains(text, "SSL is not enabled on the server"):
		return "Add ?sslmode=disable to the URL."
	}
	return ""
}

// fatal returns the error that ends the worker, with a hint, or nil. Once a connection has worked,
// no error does.
func (l *link) fatal(err error) error {
	if err != nil && !l.hasWorked.Load() {
		if hint := hint(err, "grant_worker", l.cell.server.User); hint != "" {
			return database.Explain(err, hint)
		}
	}
	return nil
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
		return database.Explain(fmt.Errorf("the database %q does not have the extension jobs", c.server.Database), hintExtension)
	case c.server.IsOld:
		return database.Explain(fmt.Errorf("the extension jobs has version %s, and this library needs %s", version, needs),
			"Run ALTER EXTENSION jobs UPDATE, after installing it on the server.")
	}
	return nil
}
