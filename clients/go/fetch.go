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
	// left is how many seconds the attempt may take, of so many in all. The server counts them, as
	// its clock and ours need not agree.
	left, total sql.NullFloat64
}

const fetchCall = `SELECT j.id, j.token, to_json(j),
		extract(epoch FROM j.deadline_at - clock_timestamp())::float8,
		extract(epoch FROM j.deadline_at - j.attempted_at)::float8
	FROM jobs.fetch_any(queues => $1, max_jobs => $2, worker => $3, lease => $4, kinds => $5) j`

func (j *fetched) scan(scan func(...any) error) error {
	return scan(&j.id, &j.token, &j.row, &j.left, &j.total)
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
	free := w.options.Concurrency
	for _, running := range w.running {
		free -= running
	}
	if w.command != "run" || free <= 0 {
		return "", 0
	}
	names := append([]string(nil), w.options.Queues...)
	weight := func(queue string) float64 {
		if weight := w.options.Weights[queue]; weight > 0 {
			return float64(weight)
		}
		return 1
	}
	used := func(i int) float64 { return float64(w.running[names[i]]) / weight(names[i]) }
	sort.SliceStable(names, func(i, j int) bool { return used(i) < used(j) })
	total := 0.0
	for _, name := range names {
		total += weight(name)
	}
	share := float64(w.options.Concurrency) * weight(names[0]) / total
	lacks := int(math.Ceil(share)) - w.running[names[0]]
	if lacks < 1 {
		lacks = 1
	}
	if lacks < free {
		free = lacks
	}
	return array(names), free
}

// fetch gets at most so many jobs. A fetch under way is never abandoned at a stop: its jobs may be
// ours already.
func (w *Worker) fetch(queues string, places int) (jobs []fetched, err error) {
	err = w.fetching.do(w.quit, func(conn *sql.Conn) error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
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
	return w.fetching.do(w.quit, func(conn *sql.Conn) error {
		const call = "CALL jobs.wait_any(queues => $1, timeout => $2, worker => $3)"
		_, err := conn.ExecContext(w.quit, call, w.queues, interval(30*time.Second), w.options.Name)
		return err
	})
}

// start runs the handler of a job.
func (w *Worker) start(job fetched) {
	a, work := w.attempt(context.Background(), job)
	w.mu.Lock()
	w.held[a] = struct{}{}
	w.mu.Unlock()
	if w.quit.isRaised() { // while the fetch was under way
		a.cancel(ErrStopping)
		a.settle()
		w.send(a, a.result("release"))
		return
	}
	w.mu.Lock()
	w.running[a.row.Queue]++
	w.mu.Unlock()
	w.handling.Add(1)
	stop := func() bool { return false }
	if deadline, ok := a.ctx.Deadline(); ok {
		stop = time.AfterFunc(time.Until(deadline), func() { w.timeOut(a) }).Stop
	}
	go a.perform(work, func(out *result) {
		stop()
		a.cancelCtx()
		if a.settle() {
			w.send(a, out)
		}
		w.mu.Lock()
		w.running[a.row.Queue]--
		w.mu.Unlock()
		wake(w.changed)
		w.handling.Done()
	})
}

// timeOut fails an attempt at once, whether or not its handler ends.
func (w *Worker) timeOut(a *attempt) {
	a.cancel(ErrTimeout)
	if a.cancelledBecause() != ErrLost && a.settle() {
		w.send(a, a.timeout())
	}
}

// attempt is what becomes of a job that was fetched, with what runs it.
func (w *Worker) attempt(ctx context.Context, job fetched) (*attempt, Work) {
	now := time.Now()
	row := &JobRow{}
	unread := decode(job.row, row)
	a := &attempt{id: job.id, token: job.token, row: row}
	row.ID, row.attempt = job.id, a
	a.use = func(ctx context.Context, call func(context.Context, DB) error) error {
		return w.finishing.do(ctx, func(conn *sql.Conn) error {
			own, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			return call(own, conn)
		})
	}
	h := w.handler(row.Kind)
	switch {
	case unread != nil:
		h = &handler{work: func(context.Context, *JobRow) (any, error) {
			return nil, fmt.Errorf("the job cannot be read: %w", unread)
		}}
	case h == nil:
		h = &handler{work: func(context.Context, *JobRow) (any, error) {
			return nil, fmt.Errorf("there is no handler for kind %q", row.Kind)
		}}
	}
	timeout := h.timeout
	if timeout == 0 {
		timeout = w.options.Timeout
	}
	var ends time.Time
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

// seconds is a duration; one that is too long is the longest.
func seconds(count float64) time.Duration {
	if count > math.MaxInt64/float64(time.Second)/2 {
		return math.MaxInt64 / 2
	}
	return time.Duration(count * float64(time.Second))
}

// interval is a duration as an argument of a statement.
func interval(duration time.Duration) string {
	return fmt.Sprintf("%.6f s", duration.Seconds())
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
