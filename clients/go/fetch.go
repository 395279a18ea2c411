package jobs

import (
	"context"
	"fmt"
	"math"
	"sort"
	"strings"
	"time"
)

// Times are numbers: texts have the offset of the session's time zone, and that of 0001-01-01 in
// Berlin has seconds, which package time does not read. What is left of an attempt is counted by
// the server, as its clock and ours need not agree.
//
// The numbers are float8, and what is empty is null, as that costs the server least.
const fetchCall = `SELECT j.id, j.token, j.kind, j.queue, j.args, nullif(j.meta, '{}'),
		CASE WHEN j.tags <> '{}' THEN to_json(j.tags) END, j.priority, j.attempt, j.max_attempts,
		date_part('epoch', j.created_at), date_part('epoch', j.scheduled_at), date_part('epoch', j.attempted_at),
		date_part('epoch', j.deadline_at - clock_timestamp()),
		least(date_part('epoch', j.deadline_at - j.attempted_at) / 20, 1)
	FROM jobs.fetch_any(queues => $1, max_jobs => $2, worker => $3, lease => $4, kinds => $5) j`

// scanAttempt is the attempt of a fetched job.
func scanAttempt(ctx context.Context, columns columns) (*attempt, error) {
	row := &JobRow{Meta: map[string]any{}}
	a := &attempt{row: row}
	row.attempt = a
	a.ctx, a.cancelCtx = context.WithCancel(ctx)
	var meta, tags []byte
	var created, scheduled, attempted float64
	err := columns(&row.ID, &a.token, &row.Kind, &row.Queue, (*[]byte)(&row.RawArgs), &meta, &tags,
		&row.Priority, &row.Attempt, &row.MaxAttempts, &created, &scheduled, &attempted, &a.left, &a.margin)
	if meta != nil {
		_ = decode(meta, &row.Meta)
	}
	if tags != nil {
		_ = decode(tags, &row.Tags)
	}
	row.CreatedAt, row.ScheduledAt, row.AttemptedAt = at(created), at(scheduled), at(attempted)
	return a, err
}

// at is a time by its seconds since 1970.
func at(seconds float64) time.Time { return time.UnixMicro(int64(math.Round(seconds * 1e6))) }

// fetchLoop fetches and starts jobs until the worker is to fetch no more.
func (w *Worker) fetchLoop() {
	inVain := 0
	for queues, places := w.awaitPlaces(); places > 0; queues, places = w.awaitPlaces() {
		jobs, err := w.fetch(queues, places)
		for _, a := range jobs {
			w.start(a)
		}
		begun := time.Now()
		if err == nil && len(jobs) < places {
			const call = "CALL jobs.wait_any(queues => $1, timeout => '30 s', worker => $2)"
			err = w.fetching.value(w.quit, 0, nil, call, w.queues, w.options.Name)
		}
		switch {
		case err != nil && w.quit.Err() == nil:
			w.options.Log.Error("jobs cannot be fetched", "error", err)
			sleep(w.quit, maxPause/4)
		case len(jobs) > 0 || time.Since(begun) > 20*time.Millisecond:
			inVain = 0
		case inVain < 13:
			inVain++
			fallthrough
		default: // jobs that are not for us, such as those of other kinds, end every wait at once
			sleep(w.quit, time.Second>>13<<inVain)
		}
	}
}

// awaitPlaces waits until there are places; there are none if the worker is to fetch no more.
func (w *Worker) awaitPlaces() (queues string, places int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.quit.Err() == nil {
		w.yield()
		if queues, places = w.places(); places > 0 {
			return queues, places
		}
		w.changed.Wait()
	}
	return "", 0
}

// places is from which queues to fetch, and how many jobs.
func (w *Worker) places() (queues string, places int) {
	free, running := float64(w.options.Concurrency), map[string]float64{}
	for a := range w.held {
		if !a.ended.Load() || w.isFailing.Load() {
			running[a.row.Queue]++
			free--
		}
	}
	// What a call of results waits for must not keep more and more of them.
	if w.command != "run" || free < 1 || len(w.held) >= w.options.Concurrency+maxResults {
		return "", 0
	}
	names := append([]string(nil), w.options.Queues...)
	sort.SliceStable(names, func(i, j int) bool { // the one that runs least for its weight first
		return running[names[i]]/w.weights[names[i]] < running[names[j]]/w.weights[names[j]]
	})
	shares := 0.0
	for _, weight := range w.weights {
		shares += weight
	}
	share := float64(w.options.Concurrency) * w.weights[names[0]] / shares
	lacks := math.Max(1, math.Ceil(share)-running[names[0]])
	return array(names), int(math.Min(lacks, math.Min(free, 10_000)))
}

// fetch gets at most so many jobs. A fetch under way is never abandoned at a stop: its jobs may be
// ours already.
func (w *Worker) fetch(queues string, places int) (jobs []*attempt, err error) {
	err = w.fetching.do(w.quit, patience, nil, func(ctx context.Context) error {
		jobs = nil
		return w.fetching.query(ctx, func(columns columns) error {
			a, err := scanAttempt(context.Background(), columns)
			jobs = append(jobs, a)
			return err
		}, fetchCall, queues, places, w.options.Name, interval(w.options.Lease), w.kinds())
	})
	if err != nil { // what it got before is another worker's, too
		return nil, err
	}
	return jobs, nil
}

// start runs the handler of a job.
func (w *Worker) start(a *attempt) {
	a.value = func(ctx context.Context, answer any, call string, args ...any) error {
		return w.finishing.value(ctx, patience, answer, call, args...)
	}
	w.mu.Lock()
	w.held[a] = struct{}{}
	w.mu.Unlock()
	h := w.handler(a.row.Kind)
	if w.quit.Err() != nil { // since the fetch began
		a.cancel(ErrStopping)
		h.work = func(context.Context, *JobRow) (any, error) { return nil, ErrStopping }
	}
	limit := h.timeout
	if a.left.Valid {
		a.row.Deadline = time.Now().Add(seconds(a.left.Float64))
		if early := seconds(a.left.Float64 - a.margin.Float64); early < limit {
			limit = early
		}
	}
	timer := time.AfterFunc(limit, func() { w.timeOut(a) })
	w.handling.Add(1)
	go a.perform(h.work, func(result string, _ bool) {
		timer.Stop()
		a.cancelCtx()
		if a.settle() {
			w.send(a, result)
		}
		w.change(func() {
			a.ended.Store(true)
			w.forget(a)
		})
		w.handling.Done()
	})
}

// forget forgets an attempt if it is over.
func (w *Worker) forget(a *attempt) {
	if a.ended.Load() && a.told.Load() {
		delete(w.held, a)
	}
}

// timeOut fails an attempt at once, whether or not its handler ends. One that completes its job in
// a transaction has the job locked, and the call would wait for that.
func (w *Worker) timeOut(a *attempt) {
	isFailed := a.row.CancelledBecause() != ErrLost && !a.completed.Load() && a.settle()
	a.cancel(ErrTimeout)
	if isFailed {
		w.send(a, a.fail(ErrTimeout.Error(), "timeout"))
	}
}

// seconds is a duration; one that is too long is a century.
func seconds(count float64) time.Duration {
	return time.Duration(math.Min(count, 100*365*24*3600) * float64(time.Second))
}

// interval is a duration as an argument of a statement; a negative one is zero.
func interval(duration time.Duration) string {
	return fmt.Sprintf("%.6f s", math.Max(0, duration.Seconds()))
}

// array is an array of texts as an argument of a statement.
func array(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
	}
	return "{" + strings.Join(quoted, ",") + "}"
}

// numbers is an array of numbers as an argument of a statement.
func numbers(values []int64) string {
	return "{" + strings.Trim(strings.ReplaceAll(fmt.Sprint(values), " ", ","), "[]") + "}"
}
