package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"time"

	"example.org/jobs/internal/database"
)

// DB is the caller's connection, transaction or pool: a [pgx.Tx], *pgx.Conn or *pgxpool.Pool; a
// *sql.Tx, *sql.Conn or *sql.DB; or any type with the method Query of pgx or QueryContext of
// database/sql. Other types are an error.
//
// [pgx.Tx]: https://pkg.go.dev/github.com/jackc/pgx/v5#Tx
type DB any

// State is the state of a job: available, scheduled, pending, running, retryable, completed,
// cancelled or discarded.
type State string

// InsertOpts are options of an insert. Zero values mean the default of the args, else that of the
// kind, else the server's, which is given here.
type InsertOpts struct {
	// Queue is the name of the queue. Default: "default".
	Queue string `json:"queue,omitempty"`
	// Priority orders jobs: lower numbers run first. Default: 1.
	Priority *int `json:"priority,omitempty"`
	// ScheduledAt is when the job is due. Default: now.
	ScheduledAt time.Time `json:"scheduled_at,omitzero"`
	// MaxAttempts is the maximum number of attempts. Default: 25.
	MaxAttempts int `json:"max_attempts,omitempty"`
	// Tags are labels to find the job by.
	Tags []string `json:"tags,omitempty"`
	// Meta is metadata.
	Meta map[string]any `json:"meta,omitempty"`
	// Timeout is the timeout of an attempt, or [NoTimeout]. Default: 1 minute.
	Timeout time.Duration `json:"-"`
	// Retry is the retry policy. Default: [Named]("river").
	Retry Retry `json:"retry,omitzero"`
	// ExpiresAt is when the job is discarded unless it was fetched. Default: never.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	// Pending jobs wait for jobs.activate.
	Pending bool `json:"pending,omitempty"`
	// Unique is what makes the job unique. &Unique{} means not unique, even if the kind is.
	Unique *Unique `json:"unique_opts,omitempty"`
}

// encodedOpts are options as functions of the extension read them.
type encodedOpts struct {
	InsertOpts
	Timeout float64 `json:"timeout,omitempty"`
}

func encoded(opts InsertOpts) encodedOpts { return encodedOpts{opts, opts.Timeout.Seconds()} }

// NewJob is a job to insert.
type NewJob struct {
	Args Args // the args, which determine the kind
	InsertOpts
}

// MarshalJSON encodes the job for jobs.insert_many.
func (j NewJob) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Kind string `json:"kind"`
		Args Args   `json:"args"`
		encodedOpts
	}{j.Args.Kind(), j.Args, encoded(j.InsertOpts)})
}

// withDefaults returns the job with the defaults of its args.
func (j NewJob) withDefaults() (NewJob, error) {
	if args := reflect.ValueOf(j.Args); !args.IsValid() || args.Kind() == reflect.Pointer && args.IsNil() {
		return j, errors.New("jobs: the args of a job must not be nil")
	}
	defaults, given := defaultsOf(j.Args), reflect.ValueOf(j.InsertOpts)
	for i, merged := 0, reflect.ValueOf(&defaults).Elem(); i < given.NumField(); i++ {
		if !given.Field(i).IsZero() {
			merged.Field(i).Set(given.Field(i))
		}
	}
	return NewJob{j.Args, defaults}, nil
}

// defaultsOf returns the defaults of a type of args, if it has any.
func defaultsOf(args any) InsertOpts {
	if args, hasDefaults := args.(interface{ InsertOpts() InsertOpts }); hasDefaults {
		return args.InsertOpts()
	}
	return InsertOpts{}
}

// Inserted is the result of an insert.
type Inserted struct {
	ID        int64 `json:"id"`                          // of the new or old job; 0 in an outbox
	State     State `json:"state"`                       // of that job
	Duplicate bool  `json:"unique_skipped_as_duplicate"` // whether nothing was inserted
}

// Insert inserts a job, in the caller's transaction if db is one. Only the last of opts counts.
func Insert(ctx context.Context, db DB, args Args, opts ...InsertOpts) (Inserted, error) {
	return Producer{}.Insert(ctx, db, args, opts...)
}

// InsertMany inserts all of the jobs in one statement, or none. It returns their results in order.
func InsertMany(ctx context.Context, db DB, jobs []NewJob) ([]Inserted, error) {
	return Producer{}.InsertMany(ctx, db, jobs)
}

func insertMany(ctx context.Context, db DB, jobs []NewJob) (inserted []Inserted, err error) {
	if cells, isCells := db.(*Cells); isCells {
		return cells.insertMany(ctx, jobs)
	}
	encoded, err := json.Marshal(jobs)
	if err == nil && len(jobs) > 0 {
		err = queryJSON(ctx, db, &inserted, "SELECT json_agg(r ORDER BY ord) FROM jobs.insert_many($1) r", string(encoded))
	}
	return inserted, err
}

// Producer inserts jobs with middleware around each insert.
type Producer struct {
	// Around is middleware around every insert, the first outermost.
	Around []func(next InsertFunc) InsertFunc
}

// InsertFunc inserts jobs in middleware. To change a map of Meta, copy it.
type InsertFunc func(ctx context.Context, db DB, jobs []NewJob) ([]Inserted, error)

// Insert is the function Insert with the middleware.
func (p Producer) Insert(ctx context.Context, db DB, args Args, opts ...InsertOpts) (Inserted, error) {
	job := NewJob{args, append([]InsertOpts{{}}, opts...)[len(opts)]} // the last one
	inserted, err := p.InsertMany(ctx, db, []NewJob{job})
	// Middleware may return no results.
	return append(inserted[:len(inserted):len(inserted)], Inserted{})[0], err
}

// InsertMany is the function InsertMany with the middleware.
func (p Producer) InsertMany(ctx context.Context, db DB, jobs []NewJob) (inserted []Inserted, err error) {
	jobs = slices.Clone(jobs)
	for i := range jobs {
		if jobs[i], err = jobs[i].withDefaults(); err != nil {
			return nil, err
		}
	}
	return around[InsertFunc](p.Around, insertMany)(ctx, db, jobs)
}

// queryJSON makes a call that returns one JSON value.
func queryJSON(ctx context.Context, db DB, answer any, call string, args ...any) error {
	rows, err := database.Query(ctx, db, database.Value[[]byte], call, args...)
	if err != nil {
		return database.Advise(err, "grant_producer", db)
	}
	return decode(rows[0], answer)
}

// Want is what [WaitFor] waits for.
type Want string

// All and Any make [WaitFor] wait until all of the jobs, or any of them, are over.
const (
	All Want = "all"
	Any Want = "any"
)

// Result is the state and result of a job, whose output has type T. Output and Error are empty if
// the caller may not see them.
type Result[T any] struct {
	ID     int64  `json:"id"`     // of the job
	State  State  `json:"state"`  // current; "" if the job does not exist
	Output T      `json:"output"` // its zero value if there is none
	Error  string `json:"error"`  // of the latest failed attempt
}

// WaitFor waits until [All] of the jobs, or [Any] of them, are over: completed, cancelled,
// discarded or deleted. It waits no longer than timeout, and returns their states and results in
// order. With json.RawMessage as T their outputs are not decoded.
//
// It needs a connection in autocommit: a pool, or a connection outside a transaction.
func WaitFor[T any](ctx context.Context, db DB, ids []int64, timeout time.Duration, want Want) (found []Result[T], err error) {
	const wait = "CALL jobs.wait_for($1, timeout => $2, want => $3)"
	if err = database.Exec(ctx, db, wait, array(ids), interval(timeout), string(want)); err != nil {
		return nil, database.Advise(err, "grant_producer", db)
	}
	return results[T](ctx, db, ids)
}

// results returns the states and results of jobs.
func results[T any](ctx context.Context, db DB, ids []int64) (found []Result[T], err error) {
	// A null member would be the output null.
	const call = `SELECT coalesce(json_agg(to_jsonb(r) - CASE WHEN output IS NULL THEN 'output' ELSE '' END
		ORDER BY ord), '[]') FROM jobs.results($1) r`
	err = queryJSON(ctx, db, &found, call, array(ids))
	return found, err
}
