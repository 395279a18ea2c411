package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	case errors.Is(err, errNoTLS), state == "" && strings.Contains(text, "SSL is not enabled on the server"):
		return "Add ?sslmode=disable to the URL."
	}
	return ""
}

// fatal returns the error that ends the worker, with a hint, or nil. Once a connection has worked,
// no error does.
func (l *link) fatal(err error) error {
	if err != nil && !l.hasWorked.Load() {
		if hint := hint(err, "grant_worker", l.worker.server.User); hint != "" {
			return database.Explain(err, hint)
		}
	}
	return nil
}

// server is what the first call learns of it.
type server struct{ Database, User, Host, Version string }

// meet asks for the extension before the first beat, and returns an error if it is missing or too
// old.
func (w *Worker) meet(ctx context.Context) error {
	found, err := query(ctx, w.control, database.Value[[]byte], `SELECT json_build_object('Database', current_database(),
		'User', session_user, 'Host', coalesce(host(inet_server_addr()), 'local'),
		'Version', (SELECT extversion FROM pg_extension WHERE extname = 'jobs'))`)
	if err == nil {
		w.control.hasWorked.Store(false) // that needs no extension
		err = json.Unmarshal(found[0], &w.server)
	}
	switch version := w.server.Version; {
	case err != nil:
		return err
	case version == "":
		return database.Explain(fmt.Errorf("the database %q does not have the extension jobs", w.server.Database), hintExtension)
	case isOlder(version, needs):
		return database.Explain(fmt.Errorf("the extension jobs has version %s, and this library needs %s", version, needs),
			"Run ALTER EXTENSION jobs UPDATE, after installing it on the server.")
	}
	return nil
}

// isOlder compares versions by their numbers.
func isOlder(version, than string) bool {
	var numbers [2][3]int
	for i, text := range []string{version, than} {
		_, _ = fmt.Sscanf(text, "%d.%d.%d", &numbers[i][0], &numbers[i][1], &numbers[i][2])
	}
	for i, number := range numbers[0] {
		if number != numbers[1][i] {
			return number < numbers[1][i]
		}
	}
	return false
}
