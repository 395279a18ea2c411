package jobs

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"sort"
	"strings"
	"time"
)

// fetched is a job as a fetch gives it.
type fetched struct {
	id, token int64
	row       []byte // as JSON
	// Microseconds since 1970.
	created, scheduled, attempted int64
	// left is how many seconds the attempt may take, of so many in all. The server counts them, as
	// its clock and ours need not agree.
	left, total sql.NullFloat64
}

// Times are numbers: texts have the offset of the session's time zone, and that of 0001-01-01 in
// Berlin has seconds, which package time does not read.
const fetchCall = `SELECT j.id, j.token, to_json(j),
		(extract(epoch FROM j.created_at) * 1000000)::bigint,
		(extract(epoch FROM j.scheduled_at) * 1000000)::bigint,
		(extract(epoch FROM j.attempted_at) * 1000000)::bigint,
		extract(epoch FROM j.deadline_at - clock_timestamp())::float8,
		extract(epoch FROM j.deadline_at - j.attempted_at)::float8
	FROM jobs.fetch_any(queues => $1, max_jobs => $2, worker => $3, lease => $4, kinds => $5) j`

func (j *fetched) scan(scan func(...any) error) error {
	return scan(&j.id, &j.token, &j.row, &j.created, &j.scheduled, &j.attempted, &j.left, &j.total)
}

// fetchLoop fetches and starts jobs until the worker is to fetch no more.
func (w *Worker) fetchLoop() {
	for !w.quit.isRaised() {
		queues, places := w.places()
		if places == 0 {
			select {
			case <-w.changed:
			case <-w.quit.Done():
			}
			continue
		}
		jobs, err := w.fetch(queues, places)
		for _, job := range jobs {
			w.start(job)
		}
		if err == nil && len(jobs) < places {
			err = w.waitForJobs()
		}
		if err != nil && !w.quit.isRaised() {
			w.options.Log.Error("jobs cannot be fetched", "error", err)
			sleep(w.quit, maxPause/4)
		}
	}
}

// places is from which queues to fetch, and how many jobs.
func (w *Worker) places() (queues string, places int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	free, shares := w.options.Concurrency, 0
	weight := func(queue string) int {
		if weight := w.options.Weights[queue]; weight > 0 {
			return weight
		}
		return 1
	}
	names := append([]string(nil), w.options.Queues...)
	for _, name := range names {
		free -= w.running[name]
		shares += weight(name)
	}
	if w.command != "run" || free <= 0 || len(w.results) > maxResults {
		return "", 0
	}
	sort.SliceStable(names, func(i, j int) bool { // the one that runs least of its share first
		return w.running[names[i]]*weight(names[j]) < w.running[names[j]]*weight(names[i])
	})
	share := float64(w.options.Concurrency*weight(names[0])) / float64(shares)
	lacks := math.Max(1, math.Ceil(share)-float64(w.running[names[0]]))
	return array(names), int(math.Min(float64(free), lacks))
}

// fetch gets at most so many jobs. A fetch under way is never abandoned at a stop: its jobs may be
// ours already.
func (w *Worker) fetch(queues string, places int) (jobs []fetched, err error) {
	err = w.fetching.do(w.quit, patience, func(ctx context.Context, conn *sql.Conn) error {
		jobs = nil
		rows, err := conn.QueryContext(ctx, fetchCall,
			queues, places, w.options.Name, interval(w.options.Lease), w.kinds())
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var job fetched
			if err := job.scan(rows.Scan); err != nil {
				return err
			}
			jobs = append(jobs, job)
		}
		return rows.Err()
	})
	return jobs, err
}

// waitForJobs returns when there may be a job, or when the worker is to fetch no more.
func (w *Worker) waitForJobs() error {
	return w.fetching.do(w.quit, 0, func(ctx context.Context, conn *sql.Conn) error {
		const call = "CALL jobs.wait_any(queues => $1, timeout => '30 s', worker => $2)"
		_, err := conn.ExecContext(ctx, call, w.queues, w.options.Name)
		return err
	})
}

// start runs the handler of a job.
func (w *Worker) start(job fetched) {
	a, work := w.attempt(context.Background(), job)
	isLate := w.quit.isRaised() // while the fetch was under way
	w.mu.Lock()
	w.held[a] = struct{}{}
	if !isLate {
		w.running[a.row.Queue]++
	}
	w.mu.Unlock()
	if isLate {
		a.cancel(ErrStopping)
		a.settle()
		w.send(a, a.result("release"))
		return
	}
	w.handling.Add(1)
	stop := func() bool { return false }
	if deadline, ok := a.ctx.Deadline(); ok {
		stop = time.AfterFunc(time.Until(deadline), func() { w.timeOut(a) }).Stop
	}
	go a.perform(work, func(result object) {
		stop()
		a.cancelCtx()
		if a.settle() {
			w.send(a, result)
		}
		w.mu.Lock()
		w.running[a.row.Queue]--
		w.mu.Unlock()
		wake(w.changed)
		w.handling.Done()
	})
}

// timeOut fails an attempt at once, whether or not its handler ends. One that completes its job in
// a transaction has the job locked, and the call would wait for that.
func (w *Worker) timeOut(a *attempt) {
	a.cancel(ErrTimeout)
	if a.cancelledBecause() != ErrLost && !a.completed.Load() && a.settle() {
		w.send(a, a.timeout())
	}
}

// attempt is what becomes of a job that was fetched, with what runs it.
func (w *Worker) attempt(ctx context.Context, job fetched) (*attempt, Work) {
	now := time.Now()
	row := &JobRow{}
	unread := decode(job.row, row)
	a := &attempt{row: row, token: job.token}
	row.ID, row.attempt = job.id, a
	row.CreatedAt, row.ScheduledAt = time.UnixMicro(job.created), time.UnixMicro(job.scheduled)
	row.AttemptedAt = time.UnixMicro(job.attempted)
	a.use = func(ctx context.Context, call func(context.Context, DB) error) error {
		return w.finishing.do(ctx, patience, func(ctx context.Context, conn *sql.Conn) error {
			return call(ctx, conn)
		})
	}
	h := w.handler(row.Kind)
	if unread != nil || h == nil {
		h = &handler{work: func(context.Context, *JobRow) (any, error) {
			return nil, fmt.Errorf("job of kind %q cannot be handled: %w", row.Kind, unread)
		}}
	}
	ends := time.Time{}
	timeout := h.timeout
	orDefault(&timeout, w.options.Timeout)
	if timeout > 0 {
		ends = now.Add(timeout)
	}
	if job.left.Valid {
		row.Deadline = now.Add(seconds(job.left.Float64))
		// Before the server ends the attempt.
		early := row.Deadline.Add(-seconds(math.Min(job.total.Float64/20, 1)))
		if ends.IsZero() || early.Before(ends) {
			ends = early
		}
	}
	if ends.IsZero() {
		a.ctx, a.cancelCtx = context.WithCancel(ctx)
	} else {
		a.ctx, a.cancelCtx = context.WithDeadline(ctx, ends)
	}
	return a, h.work
}

// seconds is a duration; one that is too long is a century.
func seconds(count float64) time.Duration {
	return time.Duration(math.Min(count, 100*365*24*3600) * float64(time.Second))
}

// interval is a duration as an argument of a statement.
func interval(duration time.Duration) string { return fmt.Sprintf("%.6f s", duration.Seconds()) }

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
