package jobs

import (
	"cmp"
	"context"
	"encoding/json"

	"golang.org/x/text/unicode/norm"

	"example.org/jobs/internal/database"
)

// PeriodicOpts are options of a periodic job. Zero values mean the kind's default at each tick, or
// first the default of the args if the worker has no handler for the kind. ScheduledAt, ExpiresAt
// and Pending have no effect.
type PeriodicOpts struct {
	InsertOpts
	// TimeZone is the time zone of the schedule. Default: UTC.
	TimeZone string `json:"time_zone,omitempty"`
	// Missed is what happens to ticks for which nothing ran: "once", the default, or "skip".
	Missed string `json:"missed,omitempty"`
}

// periodic is a periodic job that a worker declares.
type periodic struct {
	name, cron string
	args       Args
	opts       PeriodicOpts
}

// Periodic declares a periodic job, which [Worker.Sync] writes. The cron is that of jobs.schedule,
// such as "0 9 * * 1-5", "@daily" or "every 90 seconds". Only the last of opts counts.
func (w *Worker) Periodic(name, cron string, args Args, opts ...PeriodicOpts) {
	w.periodic = append(w.periodic, periodic{name, cron, args, append([]PeriodicOpts{{}}, opts...)[len(opts)]})
}

// Change is what [Worker.Sync] has done.
type Change struct {
	Object  string // "kind" or "periodic job"
	Name    string
	Outcome string // "created", "changed" or "unchanged"
}

// What these calls have as $2 is an object of options; a timeout is in seconds.
const (
	syncKind = `SELECT outcome || CASE WHEN outcome = 'unchanged' THEN '' ELSE
			jobs.define_kind($1, queue, priority, max_attempts, wanted, retry, unique_opts)::text END
		FROM (SELECT o.*, wanted, CASE WHEN k.kind IS NULL THEN 'created'
				WHEN (k.queue, k.priority, k.max_attempts, k.timeout, k.retry, k.unique_opts) IS NOT DISTINCT FROM
					(normalize(o.queue), o.priority, o.max_attempts, wanted, o.retry, o.unique_opts) THEN 'unchanged'
				ELSE 'changed' END AS outcome
			FROM jsonb_to_record($2::jsonb) o(queue text, priority integer, max_attempts integer, timeout float8, retry jsonb,
				unique_opts jsonb) CROSS JOIN make_interval(secs => o.timeout) wanted
			LEFT JOIN jobs.kinds k ON k.kind = normalize($1)) d`
	syncPeriodic = `SELECT s.outcome
		FROM jsonb_to_record($2::jsonb) o(queue text, priority integer, max_attempts integer, tags text[], meta jsonb,
			timeout float8, retry jsonb, unique_opts jsonb, time_zone text, missed text),
		jobs.schedule($1, $3, $4, $5::jsonb, coalesce(o.time_zone, 'UTC'), o.unique_opts, o.queue, o.priority, o.max_attempts,
			o.tags, o.meta, make_interval(secs => o.timeout), o.retry, coalesce(o.missed, 'once')) s`
)

// Sync writes the defaults of the worker's kinds and its periodic jobs, in the caller's transaction
// if db is one. It changes only what differs, and removes nothing.
func (w *Worker) Sync(ctx context.Context, db DB) (changes []Change, err error) {
	if w.err != nil {
		return nil, w.err
	}
	sync := func(object, name, call string, opts any, args ...any) {
		given, failure := json.Marshal(opts)
		if err = cmp.Or(err, failure); err != nil || string(given) == "{}" && object == "kind" {
			return
		}
		outcomes, failure := database.Query(ctx, db, database.Value[string], call, append([]any{name, string(given)}, args...)...)
		if failure != nil {
			err = database.Advise(failure, "grant_application", db)
			return
		}
		changes = append(changes, Change{object, name, outcomes[0]})
	}
	for _, kind := range w.kinds {
		d := w.handlers[kind].defaults
		sync("kind", kind, syncKind, encoded(InsertOpts{Queue: d.Queue, Priority: d.Priority, MaxAttempts: d.MaxAttempts,
			Timeout: d.Timeout, Retry: d.Retry, Unique: d.Unique}))
	}
	for _, p := range w.periodic {
		args, failure := json.Marshal(p.args)
		job, invalid := NewJob{p.args, p.opts.InsertOpts}.withDefaults()
		if err = cmp.Or(err, failure, invalid); w.handlers[norm.NFC.String(p.args.Kind())] == nil {
			p.opts.InsertOpts = job.InsertOpts
		}
		sync("periodic job", p.name, syncPeriodic, struct {
			PeriodicOpts
			Timeout float64 `json:"timeout,omitempty"`
		}{p.opts, p.opts.Timeout.Seconds()}, p.cron, p.args.Kind(), string(args))
	}
	return changes, err
}
