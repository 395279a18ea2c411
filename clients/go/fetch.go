package jobs

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"
	"unicode"

	"example.org/jobs/internal/database"
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
	for _, name := range slices.Concat(w.options.Queues, w.kinds) {
		for _, letter := range name {
			if letter > unicode.MaxASCII {
				return fetchJobsByOurNames
			}
		}
	}
	return fetchJobs
}

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

// fetchLoop fetches jobs until the worker stops fetching.
func (w *Worker) fetchLoop() {
	defer w.change(func() { w.fetchers-- })
	for w.await(w.stopping, func() bool { _, places := w.plan(); return places > 0 }) {
		if order, isShort := w.fetch(w.fetching, w.kinds); isShort {
			w.failIf(w.fetching.wait(w.stopping, "CALL jobs.wait_any($1, worker => $2)", order, w.options.Name))
		}
	}
}

// fetchLimitedLoop fetches kinds with a concurrency as their jobs end, while fetchLoop waits for
// jobs of any kind.
func (w *Worker) fetchLimitedLoop() {
	defer w.change(func() { w.fetchers-- })
	limited := slices.DeleteFunc(slices.Clone(w.kinds), func(kind string) bool { return w.handlers[kind].concurrency == math.MaxInt })
	var kinds []string
	for len(limited) > 0 && w.await(w.stopping, func() bool {
		kinds = slices.DeleteFunc(slices.Clone(limited), func(kind string) bool {
			return !w.handlers[kind].mayHaveMore || w.placesOf(kind) < 1
		})
		_, places := w.plan()
		return len(kinds) > 0 && places > 0
	}) {
		w.fetch(w.finishing, kinds)
	}
}

// fetch fetches as many jobs as there are places, and reports whether there were fewer. Kinds with
// a concurrency are fetched by themselves. A stop does not abandon a fetch under way: its jobs may
// be ours already.
func (w *Worker) fetch(l *link, kinds []string) (order string, isShort bool) {
	w.fetchTurn.Lock()
	defer w.fetchTurn.Unlock()
	calls := [][]string{nil} // which take turns to be the first
	for _, kind := range kinds {
		if w.handlers[kind].concurrency == math.MaxInt {
			calls[0] = append(calls[0], kind)
		} else {
			calls = append(calls, []string{kind})
		}
	}
	w.mu.Lock()
	order, places := w.plan()
	w.mu.Unlock()
	w.fetches++
	first := w.fetches % len(calls)
	for _, kinds := range slices.Concat(calls[first:], calls[:first]) {
		most, limited := places, (*handler)(nil)
		if len(kinds) == 0 {
			continue
		} else if h := w.handlers[kinds[0]]; h.concurrency < math.MaxInt {
			w.mu.Lock()
			limited, most = h, min(places, w.placesOf(kinds[0]))
			w.mu.Unlock()
		}
		var jobs []*attempt
		if most > 0 {
			var err error
			jobs, err = query(w.stopping, l, scanAttempt, w.fetchCall(),
				order, most, w.options.Name, interval(w.options.Lease), array(kinds))
			if err != nil { // they may not be ours
				if w.failIf(l.fatal(err)); w.stopping.Err() == nil {
					w.log().Error("fetch refused, retrying", "error", oneLine(err))
					w.pause(w.stopping, maxPause/4)
				}
				return order, false
			}
			w.enter(jobs)
		}
		if places -= len(jobs); limited != nil {
			w.change(func() { limited.mayHaveMore = len(jobs) == max(most, 0) })
		}
	}
	return order, places > 0
}

// plan returns from which queues and how many jobs to fetch, 0 for none.
func (w *Worker) plan() (order string, places int) {
	busy := map[string]float64{}
	w.taken(func(a *attempt) bool { busy[a.row.Queue]++; return true })
	most := w.options.Concurrency + w.options.Prefetch
	free, shares := float64(most), 0.0
	for queue, weight := range w.weights {
		free, shares = free-busy[queue], shares+weight
	}
	names := slices.Clone(w.options.Queues)
	load := func(name string) float64 { return busy[name] / w.weights[name] }
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(load(a), load(b)) })
	lacks := math.Ceil(float64(most)*w.weights[names[0]]/shares) - busy[names[0]]
	// Results must not pile up behind a call that waits.
	if w.command != "run" || free <= 0 || len(w.held) >= most+maxResults {
		return "", 0
	}
	return array(names), int(min(max(1, lacks), free, 10_000))
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
		if !w.running[a] && (a.failures > 0 || w.finishing.isFailing.Load()) && matches(a) {
			count++
		}
	}
	return count
}

// placesOf returns how many more jobs of a kind may run.
func (w *Worker) placesOf(kind string) int {
	return w.handlers[kind].concurrency - w.taken(func(a *attempt) bool { return a.row.Kind == kind })
}

// enter takes jobs that were fetched, and starts those that have a place.
func (w *Worker) enter(jobs []*attempt) {
	w.change(func() {
		for _, a := range jobs {
			a.worker = w
			w.running[a], w.held[a], w.waiting = true, true, append(w.waiting, a)
		}
	})
	if w.stopping.Err() == nil {
		w.startWaiting()
	}
	w.releaseWaiting()
}

// startWaiting starts jobs that wait for a place, in order.
func (w *Worker) startWaiting() {
	var starting []*attempt
	w.change(func() {
		count := len(w.waiting)
		if w.options.Prefetch > 0 {
			count = min(count, w.free())
		}
		starting, w.waiting = w.waiting[:count], w.waiting[count:]
		for _, a := range starting {
			if h := w.handler(a.row.Kind); h.batching != nil {
				h.join(a)
			}
		}
		for _, a := range starting {
			if a.batch != nil && a.batch.handler.linger == 0 {
				a.batch.close()
			}
		}
	})
	for _, a := range starting {
		w.start(a)
	}
}

// free returns how many handlers may start.
func (w *Worker) free() int {
	return max(0, w.options.Concurrency+len(w.waiting)-w.taken(func(*attempt) bool { return true }))
}

// releaseWaiting releases the jobs that wait for a place, if the worker is not to start them.
func (w *Worker) releaseWaiting() {
	w.mu.Lock()
	waiting := slices.Clone(w.waiting)
	if w.stopping.Err() == nil && w.command == "run" {
		waiting = nil
	}
	w.mu.Unlock()
	for _, a := range waiting {
		if w.unqueue(a) {
			a.tell(a.encode("release", object{}), nil)
		}
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

// start runs the handler of a job. A timeout fails the attempt at once, even if the handler goes
// on.
func (w *Worker) start(a *attempt) {
	h := w.handler(a.row.Kind)
	timer := time.AfterFunc(min(h.timeout, time.Until(a.until)), a.expire)
	go a.perform(h.work, func(result string, failure error) {
		timer.Stop()
		a.tell(result, failure)
		a.cancel(nil)
		if b := a.batch; b != nil && !b.leave(a) {
			<-b.done // until then it has its place
		}
		w.change(func() { delete(w.running, a) })
	})
}

// at converts seconds since 1970 to a time.
func at(seconds float64) time.Time { return time.UnixMicro(int64(math.Round(seconds * 1e6))) }

// seconds converts to a duration of at most a century.
func seconds(count float64) time.Duration { return time.Duration(min(count, 3e9) * 1e9) }
