package jobs

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"
)

// DB is a connection or transaction of the caller: a *sql.DB, *sql.Tx or *sql.Conn, or what else
// has these methods.
type DB interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// State is that of a job: available, scheduled, pending, running, retryable, completed, cancelled
// or discarded.
type State string

// InsertOpts say more about a job than its kind and args. The zero value of each leaves it to the
// kind, else to the server, whose default is said here.
type InsertOpts struct {
	// Queue is the name of the queue: "default".
	Queue string `json:"queue,omitempty"`
	// Priority: a job with a lower number runs first; 1.
	Priority *int `json:"priority,omitempty"`
	// ScheduledAt is when the job is to run: now.
	ScheduledAt time.Time `json:"-"`
	// MaxAttempts is after how many failed attempts the job is discarded: 25.
	MaxAttempts int `json:"max_attempts,omitempty"`
	// Tags are words to find the job by.
	Tags []string `json:"tags,omitempty"`
	// Meta is what is to be said beside the args.
	Meta map[string]any `json:"meta,omitempty"`
	// Timeout is how long an attempt may take: 1 minute; it can be [NoTimeout].
	Timeout time.Duration `json:"-"`
	// Retry is the policy for failed attempts: "river", "oban", "faktory", or an object as
	// jobs.insert takes it.
	Retry any `json:"retry,omitempty"`
	// ExpiresAt is when a job that has not begun is discarded: never.
	ExpiresAt time.Time `json:"-"`
	// Pending jobs wait until jobs.activate.
	Pending bool `json:"pending,omitempty"`
	// Unique is what makes the job unique. &Unique{} is not unique, also where the kind is.
	Unique *Unique `json:"unique_opts,omitempty"`
}

// Unique says which jobs are duplicates of each other, and what becomes of one. docs/uniqueness.md
// is about it.
type Unique struct {
	// ByKind: by the kind alone.
	ByKind bool `json:"by_kind,omitempty"`
	// ByArgs: by all args (true), or by these paths of them ([]string).
	ByArgs any `json:"by_args,omitempty"`
	// ByMeta: by these paths of meta.
	ByMeta []string `json:"by_meta,omitempty"`
	// ByQueue: by the queue, too.
	ByQueue bool `json:"by_queue,omitempty"`
	// ByPeriod: by the period of this length, such as a day.
	ByPeriod time.Duration `json:"-"`
	// ByState are the states in which a job counts: all but cancelled and discarded.
	ByState []State `json:"by_state,omitempty"`
	// Window is how long a job counts.
	Window time.Duration `json:"-"`
	// WindowFrom is from when: "created_at" or "scheduled_at".
	WindowFrom string `json:"window_from,omitempty"`
	// HoldFor is how long the job keeps its key, whatever becomes of it.
	HoldFor time.Duration `json:"-"`
	// HoldUntil is what ends that earlier: "success", the default, or "start".
	HoldUntil string `json:"hold_until,omitempty"`
	// ExcludeKind: also jobs of other kinds are duplicates.
	ExcludeKind bool `json:"exclude_kind,omitempty"`
	// Key is what makes it unique, instead of args, meta, queue and period.
	Key string `json:"key,omitempty"`
	// OnConflict is what becomes of a duplicate: "skip", the default, "reject", "replace",
	// "replace_except_schedule", or an object as docs/uniqueness.md has it.
	OnConflict any `json:"on_conflict,omitempty"`
	// NoWait: the job is skipped where another transaction is inserting its duplicate.
	NoWait bool `json:"-"`
}

// MarshalJSON writes the options as jobs.insert takes them.
func (u Unique) MarshalJSON() ([]byte, error) {
	type plain Unique
	return json.Marshal(struct {
		plain
		ByPeriod float64 `json:"by_period,omitempty"`
		Window   float64 `json:"window,omitempty"`
		HoldFor  float64 `json:"hold_for,omitempty"`
		Wait     *bool   `json:"wait,omitempty"`
	}{plain(u), u.ByPeriod.Seconds(), u.Window.Seconds(), u.HoldFor.Seconds(), given(false, u.NoWait)})
}

// NewJob is a job to be inserted.
type NewJob struct {
	Args Args // the args of the job, which have its kind
	InsertOpts
}

// MarshalJSON writes the job as jobs.insert_many takes it.
func (j NewJob) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Kind string `json:"kind"`
		Args Args   `json:"args"`
		InsertOpts
		ScheduledAt *time.Time `json:"scheduled_at,omitempty"`
		ExpiresAt   *time.Time `json:"expires_at,omitempty"`
		Timeout     float64    `json:"timeout,omitempty"`
	}{j.Args.Kind(), j.Args, j.InsertOpts, given(j.ScheduledAt, !j.ScheduledAt.IsZero()),
		given(j.ExpiresAt, !j.ExpiresAt.IsZero()), j.Timeout.Seconds()})
}

// given is the value of a member that is left out where it is not given.
func given[T any](value T, isGiven bool) *T {
	if isGiven {
		return &value
	}
	return nil
}

// Inserted is what became of an insert.
type Inserted struct {
	ID        int64 `json:"id"`                          // of the job, or of the one that is there
	State     State `json:"state"`                       // of that job
	Duplicate bool  `json:"unique_skipped_as_duplicate"` // it was there, and nothing was inserted
}

// Insert inserts a job, in the transaction of the caller if db is one. Of opts the last one counts.
func Insert(ctx context.Context, db DB, args Args, opts ...InsertOpts) (Inserted, error) {
	return Producer{}.Insert(ctx, db, args, opts...)
}

// InsertMany inserts jobs in one statement, all or none. It returns as many, in the same order.
func InsertMany(ctx context.Context, db DB, jobs []NewJob) (inserted []Inserted, err error) {
	encoded, err := json.Marshal(jobs)
	if err == nil && len(jobs) > 0 {
		err = queryJSON(ctx, db, &inserted, "SELECT json_agg(r ORDER BY ord) FROM jobs.insert_many($1) r", string(encoded))
	}
	return inserted, err
}

// Producer inserts jobs with middleware around it.
type Producer struct {
	// Around is middleware: a function around every insert, the first one outermost.
	Around []func(next InsertFunc) InsertFunc
}

// InsertFunc inserts jobs, in middleware. To change a map of Meta, copy it.
type InsertFunc func(ctx context.Context, db DB, jobs []NewJob) ([]Inserted, error)

// Insert is as the function Insert, with the middleware.
func (p Producer) Insert(ctx context.Context, db DB, args Args, opts ...InsertOpts) (Inserted, error) {
	job := NewJob{args, append([]InsertOpts{{}}, opts...)[len(opts)]} // the last one
	inserted, err := p.InsertMany(ctx, db, []NewJob{job})
	// Middleware may return none, and the slice is its own.
	return append(inserted[:len(inserted):len(inserted)], Inserted{})[0], err
}

// InsertMany is as the function InsertMany, with the middleware.
func (p Producer) InsertMany(ctx context.Context, db DB, jobs []NewJob) ([]Inserted, error) {
	return around[InsertFunc](p.Around, InsertMany)(ctx, db, jobs)
}

// queryJSON makes a call whose answer is one value of JSON.
func queryJSON(ctx context.Context, db DB, answer any, call string, args ...any) error {
	var row []byte
	if err := db.QueryRowContext(ctx, call, args...).Scan(&row); err != nil {
		return err
	}
	return json.Unmarshal(row, answer)
}

// All and Any are what [WaitFor] can wait for: all of the jobs are over, or at least one of them.
const All, Any = "all", "any"

// Result is what became of a job. Output and Error are there if the caller may see them.
type Result struct {
	ID     int64           `json:"id"`     // of the job
	State  State           `json:"state"`  // that of now; "" where there is no such job, or no more
	Output json.RawMessage `json:"output"` // what the handler returned; nil is none
	Error  string          `json:"error"`  // the text of the latest error
}

// WaitFor waits until [All] of the jobs, or [Any] of them, are over: completed, cancelled,
// discarded or gone. It waits no longer than timeout. Then it returns what became of each, in the
// same order.
//
// It needs a connection in autocommit, so a *sql.DB or a *sql.Conn outside of a transaction.
func WaitFor(ctx context.Context, db DB, ids []int64, timeout time.Duration, want string) (found []Result, err error) {
	const wait = "CALL jobs.wait_for($1, timeout => $2, want => $3)"
	if _, err = db.ExecContext(ctx, wait, array(ids), interval(timeout), want); err == nil {
		// A member that is null would be the output null.
		const call = `SELECT coalesce(json_agg(to_jsonb(r) - CASE WHEN output IS NULL THEN 'output' ELSE '' END
			ORDER BY ord), '[]') FROM jobs.results($1) r`
		err = queryJSON(ctx, db, &found, call, array(ids))
	}
	return found, err
}
