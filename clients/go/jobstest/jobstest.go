// Package jobstest helps to test programs that insert and work jobs, in a transaction that the test
// rolls back.
package jobstest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	jobs "postgres_jobs"
)

// TB is what of *testing.T and *testing.B is needed here.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Found is a job that is there.
type Found struct {
	ID    int64
	Kind  string
	Queue string
	State jobs.State
	Args  json.RawMessage
}

// Find returns the newest job of the kind with at least these args: a struct, a map, or what else
// is written as a JSON object. Nil is any args. If there is none, the error shows the args of the
// newest 10 jobs of the kind.
func Find(ctx context.Context, tx jobs.DB, kind string, args any) (Found, error) {
	if args == nil {
		args = struct{}{}
	}
	encoded, err := json.Marshal(args)
	if err != nil {
		return Found{}, err
	}
	found := Found{Kind: kind}
	const query = `SELECT id, queue, state, args FROM jobs.jobs WHERE kind = $1 AND args @> $2::jsonb
		ORDER BY id DESC LIMIT 1`
	err = tx.QueryRowContext(ctx, query, kind, string(encoded)).
		Scan(&found.ID, &found.Queue, &found.State, (*[]byte)(&found.Args))
	if errors.Is(err, sql.ErrNoRows) {
		var others string
		const query = `SELECT coalesce(string_agg(args::text, E'\n' ORDER BY id DESC), 'none')
			FROM (SELECT id, args FROM jobs.jobs WHERE kind = $1 ORDER BY id DESC LIMIT 10) j`
		if err = tx.QueryRowContext(ctx, query, kind).Scan(&others); err == nil {
			err = fmt.Errorf("there is no job of kind %q with args %s. The newest of that kind:\n%s", kind, encoded, others)
		}
	}
	return found, err
}

// AssertInserted returns the newest job of the kind with at least these args, as Find does, and
// fails the test if there is none.
func AssertInserted(t TB, tx jobs.DB, kind string, args any) Found {
	t.Helper()
	found, err := Find(context.Background(), tx, kind, args)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return found
}

// WorkAll runs the jobs that are due with the handlers of the worker, in the transaction, until
// nothing is due. It returns the attempts in order, and fails the test where they cannot be made at
// all. See [jobs.Worker.WorkAll].
func WorkAll(t TB, tx jobs.DB, worker *jobs.Worker) []jobs.Worked {
	t.Helper()
	worked, err := worker.WorkAll(context.Background(), tx)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return worked
}

// Advance makes every job that is scheduled or retryable run that much earlier.
func Advance(ctx context.Context, tx jobs.DB, interval time.Duration) error {
	const call = `SELECT count(jobs.update(id, scheduled_at => scheduled_at - $1::interval)) FROM jobs.jobs
		WHERE state IN ('scheduled', 'retryable')`
	_, err := tx.ExecContext(ctx, call, fmt.Sprintf("%.6f s", interval.Seconds()))
	return err
}
