package jobs

import (
	"context"
	"math"
	"sort"
	"time"
	"unicode"
)

// Times are numbers: texts have the offset of the session's time zone, and that of 0001-01-01 in
// Berlin has seconds, which package time does not read. The server computes the time left of an
// attempt, since its clock and ours need not agree.
//
// Numbers are float8 and empty values null, since that costs the server least.
const fetchTail = `, j.args, j.priority, j.attempt, j.max_attempts,
		CASE WHEN j.meta <> '{}' OR j.tags <> '{}' THEN json_build_object('Meta', j.meta, 'Tags', j.tags) END,
		date_part('epoch', j.created_at), date_part('epoch', j.scheduled_at), date_part('epoch', j.attempted_at),
		coalesce(date_part('epoch', j.deadline_at - clock_timestamp()), 'Infinity'),
		least(date_part('epoch', j.deadline_at - j.attempted_at) / 20, 1)
	FROM jobs.fetch_any(queues => $1, max_jobs => $2, worker => $3, lease => $4,
		kinds => CASE WHEN '' <> ALL ($5::text[]) THEN $5::text[] END) j`

// If the kinds include the handler of others, both statements ask for all kinds.
const (
	// fetchJobs returns names as the database stores them.
	fetchJobs = `SELECT j.id, j.token, j.kind, j.queue` + fetchTail
	// fetchJobsByOurNames returns names as the worker spells them.
	fetchJobsByOurNames = `SELECT j.id, j.token,
		coalesce((SELECT n FROM unnest($5::text[]) n WHERE normalize(n) = j.kind LIMIT 1), j.kind),
		coalesce((SELECT n FROM unnest($1::text[]) n WHERE normalize(n) = j.queue LIMIT 1), j.queue)` + fetchTail
)

// fetchCall is the worker's fetch statement. The database stores names in Unicode normal form C,
// which package unicode does not support. So jobs get the worker's spelling if a name is not ASCII.
func (w *Worker) fetchCall() string {
	for _, name := range append(append([]string{}, w.options.Queues...), w.kinds...) {
		for _, letter := range name {
			if letter > unicode.MaxASCII {
				return fetchJobsByOurNames
			}
		}
	}
	return fetchJobs
}

// scanAttempt reads the attempt of a fetched job.
func scanAttempt(columns func(into ...any) error) (*attempt, error) {
	row := &JobRow{Meta: map[string]any{}}
	a := &attempt{row: row}
	row.attempt = a
	var more []byte // other fields of JobRow; null if empty
	var created, scheduled, attempted, left, margin float64
	err := columns(&row.ID, &a.token, &row.Kind, &row.Queue, (*[]byte)(&row.RawArgs),
		&row.Priority, &row.Attempt, &row.MaxAttempts, &more, &created, &scheduled, &attempted, &left, &margin)
	_ = decode(more, row)
	row.CreatedAt, row.ScheduledAt, row.AttemptedAt = at(created), at(scheduled), at(attempted)
	if a.limit = seconds(left - margin); !math.IsInf(left, 1) {
		row.Deadline = time.Now().Add(seconds(left))
	}
	return a, err
}

// fetchLoop fetches and starts jobs until the worker stops fetching. A stop does not abandon a
// fetch under way: its jobs may be ours already.
func (w *Worker) fetchLoop() {
	defer w.change(func() { w.fetchIsOver = true })
	for w.await(w.stopping, w.hasPlaces) {
		jobs, err := query(w.stopping, w.fetching, scanAttempt, w.fetchCall(),
			w.order, w.places, w.options.Name, interval(w.options.Lease), array(w.kinds))
		for i := 0; i < len(jobs) && err == nil; i++ { // else they may not be ours
			w.start(jobs[i])
		}
		if err == nil && len(jobs) < w.places {
			w.fetching.wait(w.stopping, "CALL jobs.wait_any($1, worker => $2)", w.order, w.options.Name)
		} else if err != nil && w.stopping.Err() == nil {
			w.options.Log.Error("fetch refused, retrying", "error", err)
			w.pause(w.stopping, maxPause/4)
		}
	}
}

// hasPlaces reports whether to fetch, and decides from which queues and how many jobs.
func (w *Worker) hasPlaces() bool {
	busy := map[string]float64{}
	for a := range w.running {
		busy[a.row.Queue]++
	}
	for a := range w.held { // a result that cannot be sent holds its place
		if !w.running[a] && (a.failures > 0 || w.finishing.isFailing.Load()) {
			busy[a.row.Queue]++
		}
	}
	free, shares := float64(w.options.Concurrency), 0.0
	for queue, weight := range w.weights {
		free, shares = free-busy[queue], shares+weight
	}
	names := append([]string(nil), w.options.Queues...)
	load := func(i int) float64 { return busy[names[i]] / w.weights[names[i]] }
	sort.SliceStable(names, func(i, j int) bool { return load(i) < load(j) })
	lacks := math.Ceil(float64(w.options.Concurrency)*w.weights[names[0]]/shares) - busy[names[0]]
	w.order, w.places = array(names), int(math.Min(math.Max(1, lacks), math.Min(free, 10_000)))
	// Results must not pile up behind a call that waits.
	return w.command == "run" && free > 0 && len(w.held) < w.options.Concurrency+maxResults
}

// start runs the handler of a job. A timeout fails the attempt at once, even if the handler goes
// on.
func (w *Worker) start(a *attempt) {
	a.worker = w
	a.ctx, a.cancelCtx = context.WithCancel(context.Background())
	w.change(func() { w.running[a], w.held[a] = true, true })
	h := w.handler(a.row.Kind)
	if w.stopping.Err() != nil { // since the fetch began
		a.cancel(ErrStopping)
		h.work = func(context.Context, *JobRow) (any, error) { return nil, ErrStopping }
	}
	timer := time.AfterFunc(least(h.timeout, a.limit), func() {
		// A handler that completes its job in a transaction has it locked, and the call would wait.
		for a.completed.Load() && !a.settled.Load() {
			time.Sleep(time.Second)
		}
		if !a.settled.Load() && a.row.CancelledBecause() != ErrLost {
			a.tell(a.fail(ErrTimeout))
			a.cancel(ErrTimeout)
		}
	})
	go a.perform(h.work, func(result string, failure error) {
		timer.Stop()
		a.cancelCtx()
		a.tell(result, failure)
		w.change(func() { delete(w.running, a) })
	})
}

// at converts seconds since 1970 to a time.
func at(seconds float64) time.Time { return time.UnixMicro(int64(math.Round(seconds * 1e6))) }

// seconds converts to a duration of at most a century.
func seconds(count float64) time.Duration { return time.Duration(math.Min(count, 3e9) * 1e9) }
