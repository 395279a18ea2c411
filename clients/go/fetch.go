package jobs

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"example.org/jobs/internal/database"
)

// Times are numbers: texts have the offset of the session's time zone, and that of 0001-01-01 in
// Berlin has seconds, which package time does not read. The server computes the time left of an
// attempt, since its clock and ours need not agree.
//
// Numbers are float8 and empty values null, since that costs the server least.
// If the kinds include the handler of others, it asks for all kinds.
const fetchJobs = `SELECT j.id, j.token, j.kind, j.queue, j.args, j.priority, j.attempt, j.max_attempts,
		CASE WHEN j.meta <> '{}' OR j.tags <> '{}' THEN json_build_object('Meta', j.meta, 'Tags', j.tags) END,
		date_part('epoch', j.created_at), date_part('epoch', j.scheduled_at), date_part('epoch', j.attempted_at),
		coalesce(date_part('epoch', j.deadline_at - clock_timestamp()), 'Infinity'),
		least(date_part('epoch', j.deadline_at - j.attempted_at) / 20, 1)
	FROM jobs.fetch_any(queues => $1, max_jobs => $2, worker => $3, lease => $4,
		kinds => CASE WHEN '' <> ALL ($5::text[]) THEN $5::text[] END) j`

// scanAttempt reads the attempt of a fetched job.
func scanAttempt(columns database.Columns) (*attempt, error) {
	row := &JobRow{Meta: map[string]any{}}
	a := newAttempt(context.Background(), row)
	var more []byte // other fields of JobRow; null if empty
	var created, scheduled, attempted, left, margin float64
	err := columns(&row.ID, &a.token, &row.Kind, &row.Queue, (*[]byte)(&row.RawArgs),
		&row.Priority, &row.Attempt, &row.MaxAttempts, &more, &created, &scheduled, &attempted, &left, &margin)
	_ = decode(more, row)
	row.CreatedAt, row.ScheduledAt, row.AttemptedAt = at(created), at(scheduled), at(attempted)
	if a.until = time.Now().Add(seconds(left - margin)); !math.IsInf(left, 1) {
		row.Deadline = time.Now().Add(seconds(left))
	}
	return a, err
}

// fetchLoop fetches jobs until the worker stops fetching. While it waits for jobs of any kind, it
// fetches kinds with a concurrency as their jobs end, over the connection that sends results.
func (c *cell) fetchLoop() {
	defer c.change(func() { c.fetches-- })
	for c.await(c.stopping, func() bool { _, places := c.plan(); return places > 0 && c.isNext() }) {
		waiting, rewait := context.WithCancel(c.stopping)
		c.change(func() { c.isIdle, c.rewait = false, rewait })
		if order, isShort := c.fetch(c.fetching, c.kinds); isShort {
			waited, end := context.WithCancel(context.Background())
			go func() {
				defer end()
				c.failIf(c.fetching.wait(waiting, "CALL jobs.wait_any($1, worker => $2)", order, c.options.Name))
			}()
			var kinds []string
			for c.await(waited, func() bool {
				kinds = slices.DeleteFunc(slices.Clone(c.kinds), func(kind string) bool {
					return !c.isRich[kind] || c.placesOf(kind) < 1
				})
				_, places := c.plan()
				return len(kinds) > 0 && places > 0 && waiting.Err() == nil
			}) {
				c.fetch(c.finishing, kinds)
			}
		}
		rewait()
		c.change(func() { c.isIdle = true })
	}
}

// isNext reports whether no other cell that has fewer jobs here is about to fetch.
func (c *cell) isNext() bool {
	count := func(c *cell) int {
		return c.taken(func(a *attempt) bool { return a.cell == c }) + c.fetching.asked
	}
	return !slices.ContainsFunc(c.cells, func(other *cell) bool {
		return other != c && other.isIdle && len(other.queues) > 0 && other.command == "run" && count(other) < count(c)
	})
}

// fetch fetches as many jobs as there are places, and reports whether there were fewer. Kinds with
// a concurrency are fetched by themselves. A stop does not abandon a fetch under way: its jobs may
// be ours already.
func (c *cell) fetch(l *link, kinds []string) (order string, isShort bool) {
	var calls [][]string // any of which may be the first
	var shared []string
	for _, kind := range kinds {
		if c.handlers[kind].concurrency == math.MaxInt {
			shared = append(shared, kind)
		} else {
			calls = append(calls, []string{kind})
		}
	}
	if len(shared) > 0 {
		calls = append(calls, shared)
	}
	c.mu.Lock()
	order, places := c.plan()
	c.mu.Unlock()
	first := rand.IntN(len(calls))
	for _, kinds := range slices.Concat(calls[first:], calls[:first]) {
		c.change(func() {
			_, now := c.plan() // other cells fetch as well
			places = min(places, now)
			l.asked, l.kind = max(0, min(places, c.placesOf(kinds[0]))), kinds[0]
		})
		most := l.asked
		var jobs []*attempt
		var err error
		if most > 0 {
			jobs, err = try(c.stopping, context.Background(), l, scanAttempt, fetchJobs,
				[]any{order, most, c.options.Name, interval(c.options.Lease), array(kinds)})
		}
		if err != nil {
			jobs = nil // they may not be ours
		}
		c.enter(l, jobs)
		if err != nil {
			if c.failIf(l.fatal(err)); c.stopping.Err() == nil {
				l.failed(c.stopping, "fetch", err)
			}
			return order, false
		}
		places -= len(jobs)
		c.change(func() { c.isRich[kinds[0]] = c.handlers[kinds[0]].concurrency < math.MaxInt && len(jobs) == most })
	}
	return order, places > 0
}

// plan returns from which queues and how many jobs to fetch, 0 for none.
func (c *cell) plan() (order string, places int) {
	busy := map[string]float64{}
	c.taken(func(a *attempt) bool { busy[a.row.Queue]++; return true })
	most := c.options.Concurrency + c.options.Prefetch
	free, shares := float64(most-c.asked("")), 0.0
	for queue, weight := range c.weights {
		free, shares = free-busy[queue], shares+weight
	}
	// Results must not pile up behind a call that waits.
	if c.command != "run" || free <= 0 || len(c.queues) == 0 || len(c.held) >= most+maxResults {
		return "", 0
	}
	names := slices.Clone(c.queues)
	load := func(name string) float64 { return busy[name] / c.weights[name] }
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(load(a), load(b)) })
	lacks := math.Ceil(float64(most)*c.weights[names[0]]/shares) - busy[names[0]]
	part := math.Ceil(free / float64(len(c.cells)))
	return array(names), int(min(max(1, lacks), part, 10_000))
}

// asked returns how many places fetches under way may fill, of a kind with a concurrency or of all.
func (w *Worker) asked(kind string) (count int) {
	for _, c := range w.cells {
		for _, l := range []*link{c.fetching, c.finishing} {
			if l.failures.Load() == 0 && (kind == "" || kind == l.kind) {
				count += l.asked
			}
		}
	}
	return count
}

// taken returns how many of the places that are taken match: those of handlers that run, and of
// results that cannot be sent.
func (w *Worker) taken(matches func(*attempt) bool) (count int) {
	for a := range w.running {
		if matches(a) {
			count++
		}
	}
	for a := range w.held {
		if !w.running[a] && (a.failures > 0 || a.cell.finishing.failures.Load() > 0) && matches(a) {
			count++
		}
	}
	return count
}

// placesOf returns how many more jobs of a kind may run.
func (w *Worker) placesOf(kind string) int {
	return w.handlers[kind].concurrency - w.asked(kind) - w.taken(func(a *attempt) bool { return a.row.Kind == kind })
}

// enter takes the jobs of a fetch, and starts those that have a place.
func (c *cell) enter(l *link, jobs []*attempt) {
	c.change(func() {
		l.asked = 0
		for _, a := range jobs {
			a.cell = c
			c.running[a], c.held[a], c.waiting = true, true, append(c.waiting, a)
			if linger := c.handler(a.row.Kind).linger; linger > 0 {
				time.AfterFunc(linger, c.startWaiting)
			}
		}
	})
	c.startWaiting()
	c.releaseWaiting()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.waiting {
		if a.timer == nil && !a.row.Deadline.IsZero() {
			a.timer = time.AfterFunc(time.Until(a.until), func() { c.release(a) })
		}
	}
}

// startWaiting starts jobs that wait for a place, in order.
func (w *Worker) startWaiting() {
	var batches [][]*attempt
	w.change(func() { batches, w.waiting = w.next() })
	for _, batch := range batches {
		w.start(batch)
	}
}

// next returns the jobs that may start now, by batch, and those that wait: for a place, or for more
// jobs of their batch.
func (w *Worker) next() (batches [][]*attempt, rest []*attempt) {
	free := w.options.Concurrency + len(w.waiting) - w.taken(func(*attempt) bool { return true })
	free = max(0, min(free, len(w.waiting)))
	if w.stopping.Err() != nil {
		free = 0
	}
	rest = slices.Clone(w.waiting[free:])
	open := map[*handler][]*attempt{}
	for _, a := range w.waiting[:free] {
		h := w.handler(a.row.Kind)
		if open[h] = append(open[h], a); len(open[h]) == h.size {
			batches = append(batches, open[h])
			delete(open, h)
		}
	}
	for h, batch := range open {
		if time.Since(batch[0].came) >= h.linger {
			batches = append(batches, batch)
		} else {
			rest = append(rest, batch...)
		}
	}
	slices.SortStableFunc(rest, byArrival)
	return batches, rest
}

// byArrival orders attempts as they were fetched.
func byArrival(a, other *attempt) int { return a.came.Compare(other.came) }

// releaseWaiting releases the jobs that wait for a place, if the worker is not to start them.
func (w *Worker) releaseWaiting() {
	w.mu.Lock()
	waiting := slices.DeleteFunc(slices.Clone(w.waiting), func(a *attempt) bool {
		return w.stopping.Err() == nil && a.cell.command == "run"
	})
	w.mu.Unlock()
	for _, a := range waiting {
		w.release(a)
	}
}

// release releases a job that waits for a place.
func (w *Worker) release(a *attempt) {
	if w.unqueue(a) {
		a.tell(a.encode("release", object{}), nil)
	}
}

// unqueue removes a job that waits for a place, or returns false if it does not.
func (w *Worker) unqueue(a *attempt) (isWaiting bool) {
	w.change(func() {
		if i := slices.Index(w.waiting, a); i >= 0 {
			isWaiting, w.waiting = true, slices.Delete(slices.Clone(w.waiting), i, i+1)
			delete(w.running, a)
		}
	})
	return isWaiting
}

// start runs the handler of a job, or of a batch. A timeout, the earliest of its jobs, fails the
// attempts at once, even if the handler continues.
func (w *Worker) start(attempts []*attempt) {
	h := w.handler(attempts[0].row.Kind)
	if h.batching != nil {
		newBatch(h, attempts)
	}
	limit := h.timeout
	for _, a := range attempts {
		limit = min(limit, time.Until(a.until))
	}
	for _, a := range attempts {
		if a.timer != nil {
			a.timer.Stop()
		}
		a.timer = time.AfterFunc(limit, a.expire)
		go a.perform(h.work, func(result string, failure error) {
			a.timer.Stop()
			a.tell(result, failure)
			a.cancel(nil)
			a.awaitBatch() // until then it has its place
			w.change(func() { delete(w.running, a) })
		})
	}
}

// at converts seconds since 1970 to a time.
func at(seconds float64) time.Time { return time.UnixMicro(int64(math.Round(seconds * 1e6))) }

// seconds converts to a duration of at most a century.
func seconds(count float64) time.Duration { return time.Duration(min(count, 3e9) * 1e9) }
