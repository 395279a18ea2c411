// Package jobstest has helpers for tests of producers and handlers. They work in a transaction that
// the test rolls back.
package jobstest

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"example.org/jobs"
	"example.org/jobs/internal/database"
)

// TB is the part of *testing.T and *testing.B that the helpers use.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Found is a job found by Find.
type Found struct {
	ID    int64
	Kind  string
	Queue string
	State jobs.State
	Args  json.RawMessage
}

// Find returns the newest job of the kind with at least these args: a struct, a map, or any value
// encoded as a JSON object. Nil matches any args. If there is none, the error has the args of the
// newest 10 jobs of the kind.
func Find(ctx context.Context, tx jobs.DB, kind string, args any) (Found, error) {
	if args == nil {
		args = struct{}{}
	}
	encoded, err := json.Marshal(args)
	if err != nil {
		return Found{}, err
	}
	const query = `SELECT id, queue, state, args FROM jobs.jobs WHERE kind = $1 AND args @> $2::jsonb
		ORDER BY id DESC LIMIT 1`
	found, err := database.Query(ctx, tx, func(columns database.Columns) (Found, error) {
		found := Found{Kind: kind}
		err := columns(&found.ID, &found.Queue, &found.State, (*[]byte)(&found.Args))
		return found, err
	}, query, kind, string(encoded))
	if err == nil && len(found) == 0 {
		const query = `SELECT coalesce(string_agg(args::text, E'\n' ORDER BY id DESC), 'none')
			FROM (SELECT id, args FROM jobs.jobs WHERE kind = $1 ORDER BY id DESC LIMIT 10) j`
		var others []string
		if others, err = database.Query(ctx, tx, database.Value[string], query, kind); err == nil {
			err = fmt.Errorf("no job of kind %q has args %s; the newest of that kind have:\n%s", kind, encoded, others[0])
		}
	}
	return append(found, Found{})[0], database.Advise(err, "grant_application", tx)
}

// AssertInserted is Find, and fails the test if there is no such job.
func AssertInserted(t TB, tx jobs.DB, kind string, args any) Found {
	t.Helper()
	found, err := Find(context.Background(), tx, kind, args)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return found
}

// WorkAll is [jobs.Worker.WorkAll], and fails the test on an error.
func WorkAll(t TB, tx jobs.DB, worker *jobs.Worker) []jobs.Worked {
	t.Helper()
	worked, err := worker.WorkAll(context.Background(), tx)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return worked
}

// Advance makes every scheduled and retryable job due that much earlier.
func Advance(ctx context.Context, tx jobs.DB, interval time.Duration) error {
	const call = `SELECT count(jobs.update(id, scheduled_at => scheduled_at - $1::interval)) FROM jobs.jobs
		WHERE state IN ('scheduled', 'retryable')`
	err := database.Exec(ctx, tx, call, fmt.Sprintf("%.6f s", interval.Seconds()))
	return database.Advise(err, "grant_application", tx)
}
