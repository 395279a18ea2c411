// Package jobstest helps to test programs that insert and work jobs, in a transaction that the test
// rolls back.
package jobstest

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	jobs "postgres_jobs"
)

// TB is what of *testing.T and *testing.B is needed here.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// IsInserted is whether there is a job of the kind with at least these args: a struct, a map, or
// what else is written as a JSON object. Nil is any args.
func IsInserted(ctx context.Context, tx jobs.DB, kind string, args any) (bool, error) {
	if args == nil {
		args = struct{}{}
	}
	encoded, err := json.Marshal(args)
	if err != nil {
		return false, err
	}
	var isThere bool
	const query = "SELECT EXISTS (SELECT FROM jobs.jobs WHERE kind = $1 AND args @> $2::jsonb)"
	err = tx.QueryRowContext(ctx, query, kind, string(encoded)).Scan(&isThere)
	return isThere, err
}

// AssertInserted fails the test unless there is a job of the kind with at least these args.
func AssertInserted(t TB, tx jobs.DB, kind string, args any) {
	t.Helper()
	isThere, err := IsInserted(context.Background(), tx, kind, args)
	if err != nil {
		t.Fatalf("jobs cannot be looked for: %v", err)
	} else if !isThere {
		t.Fatalf("there is no job of kind %q with args %+v", kind, args)
	}
}

// WorkAll runs the jobs that are due with the handlers of the worker, in the transaction, until
// there is no more. It returns these jobs with their states, and fails the test where they cannot
// be worked at all. See [jobs.Worker.WorkAll].
func WorkAll(t TB, tx jobs.DB, worker *jobs.Worker) []jobs.Worked {
	t.Helper()
	worked, err := worker.WorkAll(context.Background(), tx)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return worked
}

// Advance makes the jobs of this transaction that are to run later run that much earlier.
func Advance(ctx context.Context, tx jobs.DB, interval time.Duration) error {
	const call = `SELECT count(jobs.update(id, scheduled_at => scheduled_at - $1::interval)) FROM jobs.jobs
		WHERE state IN ('scheduled', 'retryable', 'pending') AND scheduled_at > clock_timestamp()
		AND created_at >= now()`
	_, err := tx.ExecContext(ctx, call, fmt.Sprintf("%.6f s", interval.Seconds()))
	return err
}
