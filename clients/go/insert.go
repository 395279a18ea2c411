package jobs

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
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
// kind, else to the server.
type InsertOpts struct {
	// Queue is the name of the queue. The server's default: "default".
	Queue string
	// Priority: a job with a lower number runs first. The server's default: 1.
	Priority *int
	// ScheduledAt is when the job is to run. Default: now.
	ScheduledAt time.Time
	// MaxAttempts is after how many failed attempts the job is discarded. The server's default: 25.
	MaxAttempts int
	// Tags are words to find the job by.
	Tags []string
	// Meta is what is to be said beside the args.
	Meta map[string]any
	// Timeout is how long an attempt may take; negative is no limit. The server's default: 1 minute.
	Timeout time.Duration
	// Retry is the policy for failed attempts: "river", "oban" or "faktory", or an object. See
	// jobs.insert.
	Retry any
	// ExpiresAt is when a job that has not begun is discarded. Default: never.
	ExpiresAt time.Time
	// Pending jobs wait until jobs.activate.
	Pending bool
	// Unique is what makes the job unique. &Unique{} is not unique, also where the kind is.
	Unique *Unique
}

// Unique says which jobs are duplicates of each other, and what becomes of one. docs/uniqueness.md
// is about it.
type Unique struct {
	// ByKind: jobs of the same kind.
	ByKind bool
	// ByArgs: jobs whose args are the same.
	ByArgs bool
	// ByArgsPaths, instead of ByArgs: jobs that have the same at these paths of their args.
	ByArgsPaths []string
	// ByMetaPaths: jobs that have the same at these paths of their meta.
	ByMetaPaths []string
	// ByQueue: jobs of the same queue.
	ByQueue bool
	// ByPeriod: jobs of the same period of this length, such as a day.
	ByPeriod time.Duration
	// ByState are the states in which a job counts. Default: all but cancelled and discarded.
	ByState []State
	// Window is how long a job counts.
	Window time.Duration
	// WindowFrom is from when: "created_at" or "scheduled_at".
	WindowFrom string
	// HoldFor is how long the job keeps its key, whatever becomes of it.
	HoldFor time.Duration
	// HoldUntil is what ends that earlier: "success", the default, or "start".
	HoldUntil string
	// ExcludeKind: also jobs of other kinds.
	ExcludeKind bool
	// Key is what makes it unique, instead of args, meta, queue and period.
	Key string
	// OnConflict is what becomes of a duplicate: "skip", the default, "reject", "replace" or
	// "replace_except_schedule".
	OnConflict string
	// Update, instead of OnConflict: the job that is there takes these fields, by its state.
	Update map[State][]string
	// NoWait: the job is skipped where another transaction is inserting its duplicate.
	NoWait bool
}

// NewJob is a job to be inserted.
type NewJob struct {
	// Args are the args of the job, and have its kind.
	Args Args
	InsertOpts
}

// Inserted is what became of an insert.
type Inserted struct {
	// ID is the number of the job, or of the one that is there already.
	ID int64 `json:"id"`
	// State is that of this job.
	State State `json:"state"`
	// Duplicate: the job was there already, and nothing was inserted.
	Duplicate bool `json:"unique_skipped_as_duplicate"`
}

// Insert inserts a job, in the transaction of the caller if db is one. Of opts there is at most one.
func Insert(ctx context.Context, db DB, args Args, opts ...InsertOpts) (Inserted, error) {
	return Producer{}.Insert(ctx, db, args, opts...)
}

// InsertMany inserts jobs in one statement, all or none. It returns as many, in the same order.
func InsertMany(ctx context.Context, db DB, jobs []NewJob) ([]Inserted, error) {
	return Producer{}.InsertMany(ctx, db, jobs)
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
	job := NewJob{Args: args}
	switch len(opts) {
	case 0:
	case 1:
		job.InsertOpts = opts[0]
	default:
		return Inserted{}, errors.New("jobs: Insert takes one InsertOpts")
	}
	inserted, err := p.InsertMany(ctx, db, []NewJob{job})
	if err == nil && len(inserted) != 1 {
		err = fmt.Errorf("jobs: one job was to be inserted, middleware returned %d", len(inserted))
	}
	if err != nil {
		return Inserted{}, err
	}
	return inserted[0], nil
}

// InsertMany is as the function InsertMany, with the middleware.
func (p Producer) InsertMany(ctx context.Context, db DB, jobs []NewJob) ([]Inserted, error) {
	insert := InsertFunc(insertMany)
	for i := len(p.Around) - 1; i >= 0; i-- {
		insert = p.Around[i](insert)
	}
	return insert(ctx, db, jobs)
}

func insertMany(ctx context.Context, db DB, jobs []NewJob) (inserted []Inserted, err error) {
	elements := make([]map[string]any, len(jobs))
	for i, job := range jobs {
		elements[i] = job.element()
	}
	const call = "SELECT coalesce(json_agg(r ORDER BY r.ord), '[]') FROM jobs.insert_many($1) r"
	encoded, err := encode(elements)
	if err == nil {
		err = queryJSON(ctx, db, &inserted, call, string(encoded))
	}
	return inserted, err
}

// queryJSON makes a call whose answer is one value of JSON.
func queryJSON(ctx context.Context, db DB, answer any, call, argument string) error {
	var row []byte
	if err := db.QueryRowContext(ctx, call, argument).Scan(&row); err != nil {
		return err
	}
	return json.Unmarshal(row, answer)
}

// element is the job as jobs.insert_many takes it.
func (j *NewJob) element() map[string]any {
	element := object{"kind": j.Args.Kind(), "args": j.Args}
	element.set("queue", j.Queue, j.Queue != "")
	element.set("priority", j.Priority, j.Priority != nil)
	element.set("scheduled_at", j.ScheduledAt, !j.ScheduledAt.IsZero())
	element.set("max_attempts", j.MaxAttempts, j.MaxAttempts != 0)
	element.set("tags", j.Tags, j.Tags != nil)
	element.set("meta", j.Meta, j.Meta != nil)
	element.set("retry", j.Retry, j.Retry != nil)
	element.set("expires_at", j.ExpiresAt, !j.ExpiresAt.IsZero())
	element.set("pending", true, j.Pending)
	element.set("unique_opts", j.Unique, j.Unique != nil)
	if j.Timeout < 0 {
		element["timeout"] = -1
	} else {
		element.setDuration("timeout", j.Timeout)
	}
	return element
}

// MarshalJSON writes the options as jobs.insert takes them.
func (u Unique) MarshalJSON() ([]byte, error) {
	options := object{}
	options.set("by_kind", true, u.ByKind)
	options.set("by_args", true, u.ByArgs)
	options.set("by_args", u.ByArgsPaths, u.ByArgsPaths != nil)
	options.set("by_meta", u.ByMetaPaths, u.ByMetaPaths != nil)
	options.set("by_queue", true, u.ByQueue)
	options.setDuration("by_period", u.ByPeriod)
	options.set("by_state", u.ByState, u.ByState != nil)
	options.setDuration("window", u.Window)
	options.set("window_from", u.WindowFrom, u.WindowFrom != "")
	options.setDuration("hold_for", u.HoldFor)
	options.set("hold_until", u.HoldUntil, u.HoldUntil != "")
	options.set("exclude_kind", true, u.ExcludeKind)
	options.set("key", u.Key, u.Key != "")
	options.set("on_conflict", u.OnConflict, u.OnConflict != "")
	options.set("on_conflict", object{"update": u.Update}, u.Update != nil)
	options.set("wait", false, u.NoWait)
	return json.Marshal(options)
}

type object map[string]any

func (o object) set(name string, value any, isGiven bool) {
	if isGiven {
		o[name] = value
	}
}

func (o object) setDuration(name string, duration time.Duration) {
	o.set(name, duration.Seconds(), duration != 0)
}

// What to wait for, with [WaitFor].
const (
	All = "all"
	Any = "any"
)

// Result is what became of a job.
type Result struct {
	// ID is the number of the job.
	ID int64 `json:"id"`
	// State is that of now; "" where there is no such job, or no more.
	State State `json:"state"`
	// Output is what the handler returned, where the caller may see it.
	Output json.RawMessage `json:"output"`
	// Error is the text of the latest error, where the caller may see it.
	Error string `json:"error"`
}

// WaitFor waits until [All] of the jobs, or [Any] of them, are over: completed, cancelled, discarded
// or gone. It waits no longer than timeout. Then it returns what became of each, in the same order.
//
// It needs a connection in autocommit, so a *sql.DB or a *sql.Conn outside of a transaction.
func WaitFor(ctx context.Context, db DB, ids []int64, timeout time.Duration, want string) (results []Result, err error) {
	const call = "CALL jobs.wait_for($1, timeout => $2, want => $3)"
	if _, err := db.ExecContext(ctx, call, numbers(ids), interval(timeout), want); err != nil {
		return nil, err
	}
	const answers = "SELECT coalesce(json_agg(r ORDER BY r.ord), '[]') FROM jobs.results($1) r"
	err = queryJSON(ctx, db, &results, answers, numbers(ids))
	return results, err
}
