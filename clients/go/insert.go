package jobs

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"
)

// DB is the caller's connection or transaction: a *sql.DB, *sql.Tx or *sql.Conn, or any type with
// these methods.
type DB interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// State is the state of a job: available, scheduled, pending, running, retryable, completed,
// cancelled or discarded.
type State string

// InsertOpts are options of an insert. Zero values mean the kind's default, else the server's,
// which is given here.
type InsertOpts struct {
	// Queue is the name of the queue. Default: "default".
	Queue string `json:"queue,omitempty"`
	// Priority orders jobs: lower numbers run first. Default: 1.
	Priority *int `json:"priority,omitempty"`
	// ScheduledAt is when the job is due. Default: now.
	ScheduledAt time.Time `json:"-"`
	// MaxAttempts is the maximum number of attempts. Default: 25.
	MaxAttempts int `json:"max_attempts,omitempty"`
	// Tags are labels to find the job by.
	Tags []string `json:"tags,omitempty"`
	// Meta is metadata.
	Meta map[string]any `json:"meta,omitempty"`
	// Timeout is the timeout of an attempt, or [NoTimeout]. Default: 1 minute.
	Timeout time.Duration `json:"-"`
	// Retry is the retry policy: "river", "oban", "faktory", or an object as in jobs.insert.
	Retry any `json:"retry,omitempty"`
	// ExpiresAt is when the job is discarded unless it was fetched. Default: never.
	ExpiresAt time.Time `json:"-"`
	// Pending jobs wait for jobs.activate.
	Pending bool `json:"pending,omitempty"`
	// Unique is what makes the job unique. &Unique{} means not unique, even if the kind is.
	Unique *Unique `json:"unique_opts,omitempty"`
}

// Unique defines which jobs are duplicates of each other, and what happens to a duplicate. See
// docs/uniqueness.md.
type Unique struct {
	// ByKind compares the kind alone.
	ByKind bool `json:"by_kind,omitempty"`
	// ByArgs compares all args (true), or these paths of them ([]string).
	ByArgs any `json:"by_args,omitempty"`
	// ByMeta compares these paths of meta.
	ByMeta []string `json:"by_meta,omitempty"`
	// ByQueue also compares the queue.
	ByQueue bool `json:"by_queue,omitempty"`
	// ByPeriod also compares the period of this length, such as a day.
	ByPeriod time.Duration `json:"-"`
	// ByState are the states in which an existing job conflicts. Default: all but cancelled and
	// discarded.
	ByState []State `json:"by_state,omitempty"`
	// Window is how long an existing job conflicts.
	Window time.Duration `json:"-"`
	// WindowFrom is the start of the window: "created_at", the default, or "scheduled_at".
	WindowFrom string `json:"window_from,omitempty"`
	// HoldFor is how long the job holds its key, even if it is deleted.
	HoldFor time.Duration `json:"-"`
	// HoldUntil is what releases the hold early: "success", the default, or "start".
	HoldUntil string `json:"hold_until,omitempty"`
	// ExcludeKind makes jobs of other kinds duplicates, too.
	ExcludeKind bool `json:"exclude_kind,omitempty"`
	// Key is used instead of args, meta, queue and period.
	Key string `json:"key,omitempty"`
	// OnConflict is what happens to a duplicate: "skip", the default, "reject", "replace",
	// "replace_except_schedule", or an object as in docs/uniqueness.md.
	OnConflict any `json:"on_conflict,omitempty"`
	// NoWait skips the job while another transaction is inserting its key.
	NoWait bool `json:"-"`
}

// MarshalJSON encodes the options for jobs.insert.
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
		InsertOpts
		ScheduledAt *time.Time `json:"scheduled_at,omitempty"`
		ExpiresAt   *time.Time `json:"expires_at,omitempty"`
		Timeout     float64    `json:"timeout,omitempty"`
	}{j.Args.Kind(), j.Args, j.InsertOpts, given(j.ScheduledAt, !j.ScheduledAt.IsZero()),
		given(j.ExpiresAt, !j.ExpiresAt.IsZero()), j.Timeout.Seconds()})
}

// given is the value of a member that is left out unless it is given.
func given[T any](value T, isGiven bool) *T {
	if isGiven {
		return &value
	}
	return nil
}

// Inserted is the result of an insert.
type Inserted struct {
	ID        int64 `json:"id"`                          // of the new job, or of the existing one
	State     State `json:"state"`                       // of that job
	Duplicate bool  `json:"unique_skipped_as_duplicate"` // whether nothing was inserted
}

// Insert inserts a job, in the caller's transaction if db is one. Only the last of opts counts.
func Insert(ctx context.Context, db DB, args Args, opts ...InsertOpts) (Inserted, error) {
	return Producer{}.Insert(ctx, db, args, opts...)
}

// InsertMany inserts all of the jobs in one statement, or none. It returns their results in order.
func InsertMany(ctx context.Context, db DB, jobs []NewJob) (inserted []Inserted, err error) {
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
func (p Producer) InsertMany(ctx context.Context, db DB, jobs []NewJob) ([]Inserted, error) {
	return around[InsertFunc](p.Around, InsertMany)(ctx, db, jobs)
}

// queryJSON makes a call that returns one JSON value.
func queryJSON(ctx context.Context, db DB, answer any, call string, args ...any) error {
	var row []byte
	if err := db.QueryRowContext(ctx, call, args...).Scan(&row); err != nil {
		return err
	}
	return json.Unmarshal(row, answer)
}

// All and Any make [WaitFor] wait until all of the jobs, or any of them, are over.
const All, Any = "all", "any"

// Result is the state and result of a job. Output and Error are empty if the caller may not see
// them.
type Result struct {
	ID     int64           `json:"id"`     // of the job
	State  State           `json:"state"`  // current; "" if the job does not exist
	Output json.RawMessage `json:"output"` // nil if there is none
	Error  string          `json:"error"`  // of the latest failed attempt
}

// WaitFor waits until [All] of the jobs, or [Any] of them, are over: completed, cancelled,
// discarded or deleted. It waits no longer than timeout, and returns their states and results in
// order.
//
// It needs a connection in autocommit: a *sql.DB, or a *sql.Conn outside a transaction.
func WaitFor(ctx context.Context, db DB, ids []int64, timeout time.Duration, want string) (found []Result, err error) {
	const wait = "CALL jobs.wait_for($1, timeout => $2, want => $3)"
	if _, err = db.ExecContext(ctx, wait, array(ids), interval(timeout), want); err == nil {
		// A null member would be the output null.
		const call = `SELECT coalesce(json_agg(to_jsonb(r) - CASE WHEN output IS NULL THEN 'output' ELSE '' END
			ORDER BY ord), '[]') FROM jobs.results($1) r`
		err = queryJSON(ctx, db, &found, call, array(ids))
	}
	return found, err
}
