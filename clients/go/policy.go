package jobs

import (
	"encoding/json"
	"time"
)

// Unique defines which jobs are duplicates of each other, and what happens to a duplicate. See
// docs/uniqueness.md.
type Unique struct {
	// ByKind compares the kind alone.
	ByKind bool `json:"by_kind,omitempty"`
	// ByArgs compares all args.
	ByArgs bool `json:"by_args,omitempty"`
	// ByArgPaths compares these paths of args.
	ByArgPaths []string `json:"-"`
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
	// OnConflict is what happens to a duplicate. Default: [OnConflictSkip].
	OnConflict OnConflict `json:"on_conflict,omitzero"`
	// NoWait skips the job while another transaction is inserting its key.
	NoWait bool `json:"-"`
}

// OnConflict is what happens to a job whose unique key another one has.
type OnConflict struct{ value any }

var (
	// OnConflictSkip inserts nothing and returns the existing job.
	OnConflictSkip = OnConflict{"skip"}
	// OnConflictReject fails the insert with SQLSTATE 23505.
	OnConflictReject = OnConflict{"reject"}
	// OnConflictReplace cancels the existing job and inserts the new one.
	OnConflictReplace = OnConflict{"replace"}
	// OnConflictReplaceExceptSchedule does the same, and keeps the schedule of the existing job.
	OnConflictReplaceExceptSchedule = OnConflict{"replace_except_schedule"}
)

// OnConflictUpdate updates these fields of the existing job, by its state; "*" is any other state.
func OnConflictUpdate(fields map[State][]string) OnConflict {
	return OnConflict{map[string]any{"update": fields}}
}

// MarshalJSON encodes it for jobs.insert.
func (o OnConflict) MarshalJSON() ([]byte, error) { return json.Marshal(o.value) }

// MarshalJSON encodes the options for jobs.insert.
func (u Unique) MarshalJSON() ([]byte, error) {
	type plain Unique
	encoded := struct {
		plain
		ByArgs   any     `json:"by_args,omitempty"`
		ByPeriod float64 `json:"by_period,omitempty"`
		Window   float64 `json:"window,omitempty"`
		HoldFor  float64 `json:"hold_for,omitempty"`
		Wait     *bool   `json:"wait,omitempty"`
	}{plain: plain(u), ByPeriod: u.ByPeriod.Seconds(), Window: u.Window.Seconds(), HoldFor: u.HoldFor.Seconds()}
	if len(u.ByArgPaths) > 0 {
		encoded.ByArgs = u.ByArgPaths
	} else if u.ByArgs {
		encoded.ByArgs = true
	}
	if u.NoWait {
		encoded.Wait = new(bool)
	}
	return json.Marshal(encoded)
}

// Retry is a retry policy: the delays after failed attempts. [Named], [Exponential], [Linear],
// [Polynomial] and [Constant] make one.
type Retry struct {
	// Strategy is the name of the formula.
	Strategy string `json:"strategy"`
	// Initial is the first delay. Default: 1 s.
	Initial time.Duration `json:"-"`
	// Coefficient is the base or the exponent of the formula. Default: 2.
	Coefficient float64 `json:"coefficient,omitempty"`
	// Max is the longest delay. Default: 5 minutes.
	Max time.Duration `json:"-"`
	// Jitter is the fraction by which a delay varies, or [NoJitter]. Default: 0.5.
	Jitter float64 `json:"-"`
	// NonRetryable are types of errors that discard the job, such as "auth.*".
	NonRetryable []string `json:"non_retryable,omitempty"`
	// AfterLease is the delay after an expired lease. Default: as after an error.
	AfterLease time.Duration `json:"-"`
}

// NoJitter means that a delay does not vary.
const NoJitter = -1

// Named is the formula of another queue: "river", "oban" or "faktory".
func Named(strategy string) Retry { return Retry{Strategy: strategy} }

// Exponential multiplies the delay by the coefficient each time, up to max.
func Exponential(initial, max time.Duration) Retry {
	return Retry{Strategy: "exponential", Initial: initial, Max: max}
}

// Linear adds the initial delay each time, up to max.
func Linear(initial, max time.Duration) Retry {
	return Retry{Strategy: "linear", Initial: initial, Max: max}
}

// Polynomial raises the number of the attempt to the coefficient, up to max.
func Polynomial(initial, max time.Duration) Retry {
	return Retry{Strategy: "polynomial", Initial: initial, Max: max}
}

// Constant is always the same delay.
func Constant(delay time.Duration) Retry {
	return Retry{Strategy: "constant", Initial: delay, Max: delay, Jitter: NoJitter}
}

// MarshalJSON encodes the policy for jobs.insert.
func (r Retry) MarshalJSON() ([]byte, error) {
	type plain Retry
	encoded := struct {
		plain
		Initial    float64  `json:"initial,omitempty"`
		Max        float64  `json:"max,omitempty"`
		Jitter     *float64 `json:"jitter,omitempty"`
		AfterLease float64  `json:"after_lease,omitempty"`
	}{plain: plain(r), Initial: r.Initial.Seconds(), Max: r.Max.Seconds(), AfterLease: r.AfterLease.Seconds()}
	if r.Jitter != 0 {
		jitter := max(r.Jitter, 0)
		encoded.Jitter = &jitter
	}
	return json.Marshal(encoded)
}
