package jobs

import (
	"context"
	"database/sql"
	"strings"
	"time"
)

const (
	// maxResults is how many results are sent in one call at most.
	maxResults = 1000
	// maxBytes is how many bytes of JSON these have; a larger one is sent by itself.
	maxBytes = 16 << 20
)

// outgoing is a result that is to be sent.
type outgoing struct {
	attempt *attempt
	encoded string
	isFinal bool // it says that the result before it was refused
}

// send sends what became of an attempt, nil for nothing, at once if no call is under way.
func (w *Worker) send(a *attempt, result object) {
	encoded, err := encode(result)
	if err != nil { // nested deeper than encoding/json reads it again
		encoded, _ = encode(a.fail(err.Error(), "invalid_output"))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if result == nil {
		delete(w.held, a)
		return
	}
	w.results = append(w.results, &outgoing{attempt: a, encoded: string(encoded)})
	wake(w.unsent)
}

// finishLoop sends results until the worker ends.
func (w *Worker) finishLoop(ctx context.Context) {
	for ctx.Err() == nil {
		batch, isLast := w.nextBatch()
		switch {
		case len(batch) > 0:
			w.finish(ctx, batch)
		case isLast:
			return
		default:
			select {
			case <-w.unsent:
			case <-ctx.Done():
			}
		}
	}
}

// nextBatch takes what to send in one call, and says whether nothing will come after it.
func (w *Worker) nextBatch() (batch []*outgoing, isLast bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	count, bytes := 0, 0
	for count < len(w.results) && count < maxResults {
		bytes += len(w.results[count].encoded)
		if count > 0 && bytes > maxBytes {
			break
		}
		count++
	}
	batch, w.results = w.results[:count], w.results[count:]
	return batch, w.closing
}

// finish sends results. One that is refused spoils no other.
func (w *Worker) finish(ctx context.Context, batch []*outgoing) {
	err := w.finishMany(ctx, batch)
	if err == nil {
		return
	}
	one, state := batch[0], sqlState(err)
	isBad := strings.HasPrefix(state, "22") || strings.HasPrefix(state, "54")
	switch {
	case len(batch) > 1 && ctx.Err() == nil:
		for i := range batch {
			w.finish(ctx, batch[i:i+1])
		}
	case isBad && !one.isFinal:
		encoded, _ := encode(one.attempt.fail(err.Error(), "invalid_output"))
		w.finish(ctx, []*outgoing{{attempt: one.attempt, encoded: string(encoded), isFinal: true}})
	default:
		w.options.Log.Error("a result cannot be sent", "job", one.attempt.row.ID, "error", err)
		w.mu.Lock()
		if isBad {
			w.dropped++
			delete(w.held, one.attempt)
		} else {
			w.results = append(w.results, batch...)
		}
		w.mu.Unlock()
		sleep(ctx, maxPause/4)
	}
}

// finishMany makes the call, and forgets the attempts that it has ended.
func (w *Worker) finishMany(ctx context.Context, batch []*outgoing) error {
	encoded := make([]string, len(batch))
	for i, one := range batch {
		encoded[i] = one.encoded
	}
	const call = `SELECT coalesce(json_agg(f), '[]') FROM jobs.finish_many($1) f WHERE NOT done`
	var lost []struct {
		ID     int64
		Reason string
	}
	err := w.finishing.do(ctx, patience, func(ctx context.Context, conn *sql.Conn) error {
		return queryJSON(ctx, conn, &lost, call, "["+strings.Join(encoded, ",")+"]")
	})
	if err != nil {
		return err
	}
	for _, job := range lost {
		w.options.Log.Warn("a job was lost, its result is dropped", "job", job.ID, "reason", job.Reason)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range batch {
		delete(w.held, one.attempt)
	}
	wake(w.changed) // where so many results waited that nothing was fetched
	return nil
}

// controlLoop says that the worker is there and renews leases, and hears what is asked of it.
func (w *Worker) controlLoop(ctx context.Context) {
	pace := w.options.Lease / 3
	if pace > 10*time.Second {
		pace = 10 * time.Second
	}
	for ctx.Err() == nil {
		err := w.control.do(ctx, 0, func(ctx context.Context, conn *sql.Conn) error {
			const call = "CALL jobs.wait_any('{}', timeout => $1, worker => $2)"
			_, err := conn.ExecContext(ctx, call, interval(pace), w.options.Name)
			return err
		})
		if beatErr := w.beat(ctx); err == nil {
			err = beatErr
		}
		if err != nil && ctx.Err() == nil {
			w.options.Log.Error("the server refuses a heartbeat, or the wait for requests", "error", err)
			sleep(ctx, pace/2)
		}
	}
}

// beat says that the worker is there and renews its leases, and obeys the answers.
func (w *Worker) beat(ctx context.Context) error {
	var held []*attempt
	var ids, tokens []int64
	for _, a := range w.attempts() {
		if !a.completed.Load() { // else it is locked until its transaction ends
			held, ids, tokens = append(held, a), append(ids, a.row.ID), append(tokens, a.token)
		}
	}
	const call = `SELECT json_build_object('command', jobs.worker_beat($1, $2, $3, $4),
		'cancel', (SELECT json_agg(h.cancel_requested) FROM jobs.heartbeat_many($5, $6) h))`
	var answer struct {
		Command string
		Cancel  []*bool // null where the job is lost
	}
	err := w.control.do(ctx, w.options.Lease+10*time.Second, func(ctx context.Context, conn *sql.Conn) error {
		return queryJSON(ctx, conn, &answer, call, w.options.Name, w.queues,
			w.options.Concurrency, string(w.info), numbers(ids), numbers(tokens))
	})
	if err != nil {
		return err
	}
	w.obey(answer.Command)
	for i, cancel := range answer.Cancel {
		switch a := held[i]; {
		case cancel == nil && !a.settled.Load() && !a.completed.Load():
			w.options.Log.Warn("a job was lost", "job", a.row.ID)
			a.cancel(ErrLost)
		case cancel != nil && *cancel:
			a.cancel(ErrCancelled)
		}
	}
	return nil
}

// obey takes the command of an operator.
func (w *Worker) obey(command string) {
	w.mu.Lock()
	if command != w.command {
		w.options.Log.Info("the worker has a command", "command", command)
	}
	w.command = command
	w.mu.Unlock()
	wake(w.changed)
	if command == "stop" {
		w.quit.raise()
	}
}
