package jobs

import (
	"context"
	"database/sql"
	"encoding/json"
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
	encoded []byte
	// isVerdict: it says that the result before it was refused.
	isVerdict bool
}

// send sends what became of an attempt, nil for nothing, at once if no call is under way.
func (w *Worker) send(a *attempt, out *result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if out == nil {
		delete(w.held, a)
		return
	}
	encoded, err := json.Marshal(out)
	if err != nil {
		encoded, _ = json.Marshal(a.failure(err.Error(), "invalid_output"))
	}
	w.results = append(w.results, &outgoing{attempt: a, encoded: encoded})
	wake(w.unsent)
}

// finishLoop sends results until the worker ends.
func (w *Worker) finishLoop(ctx context.Context) {
	for ctx.Err() == nil {
		w.mu.Lock()
		batch := w.nextBatch()
		isLast := w.closing
		w.mu.Unlock()
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

// nextBatch is what to send in one call.
func (w *Worker) nextBatch() []*outgoing {
	count, bytes := 0, 0
	for count < len(w.results) && count < maxResults {
		bytes += len(w.results[count].encoded)
		if count > 0 && bytes > maxBytes {
			break
		}
		count++
	}
	return w.results[:count:count]
}

// finish sends the first results. Those of which the server has not said anything stay.
func (w *Worker) finish(ctx context.Context, batch []*outgoing) {
	err := w.finishMany(ctx, batch)
	var left []*outgoing
	switch {
	case ctx.Err() != nil && err != nil:
		left = batch
	case err != nil && len(batch) > 1:
		// One of them is refused, and with it all.
		for i, one := range batch {
			single := batch[i : i+1]
			left = append(left, w.refused(ctx, one, w.finishMany(ctx, single))...)
		}
	default:
		left = w.refused(ctx, batch[0], err)
	}
	w.mu.Lock()
	w.results = append(left, w.results[len(batch):]...)
	w.mu.Unlock()
	if len(left) == len(batch) && !left[0].isVerdict {
		sleep(ctx, maxPause/4)
	}
}

// refused is what to send after the answer to one result.
func (w *Worker) refused(ctx context.Context, one *outgoing, err error) []*outgoing {
	a, state := one.attempt, sqlState(err)
	switch {
	case err == nil:
		return nil
	case len(state) != 5 || state[:2] != "22" && state[:2] != "54":
		if ctx.Err() == nil {
			w.options.Log.Error("a result cannot be sent now", "job", a.id, "error", err)
		}
		return []*outgoing{one}
	case one.isVerdict:
		w.options.Log.Error("a result is refused and dropped", "job", a.id, "error", err)
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.held, a)
		w.dropped++
		return nil
	}
	verdict, _ := json.Marshal(a.failure(err.Error(), "invalid_output"))
	return []*outgoing{{attempt: a, encoded: verdict, isVerdict: true}}
}

// finishMany makes the call, and forgets the attempts that it has ended.
func (w *Worker) finishMany(ctx context.Context, batch []*outgoing) error {
	document := []byte{'['}
	for i, one := range batch {
		if i > 0 {
			document = append(document, ',')
		}
		document = append(document, one.encoded...)
	}
	document = append(document, ']')
	var lost map[int]string
	err := w.finishing.do(ctx, func(conn *sql.Conn) error {
		own, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		lost = map[int]string{}
		rows, err := conn.QueryContext(own,
			"SELECT ord, reason FROM jobs.finish_many($1) WHERE NOT done", string(document))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var ord int
			var reason string
			if err := rows.Scan(&ord, &reason); err != nil {
				return err
			}
			lost[ord-1] = reason
		}
		return rows.Err()
	})
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, one := range batch {
		delete(w.held, one.attempt)
		if reason, isLost := lost[i]; isLost {
			w.options.Log.Warn("a job was lost, and its result is dropped",
				"job", one.attempt.id, "reason", reason)
		}
	}
	return nil
}

// controlLoop says that the worker is there and renews leases, and hears what is asked of it.
func (w *Worker) controlLoop(ctx context.Context) {
	pace := w.options.Lease / 3
	if pace > 10*time.Second {
		pace = 10 * time.Second
	}
	for ctx.Err() == nil {
		err := w.control.do(ctx, func(conn *sql.Conn) error {
			const call = "CALL jobs.wait_any('{}', timeout => $1, worker => $2)"
			_, err := conn.ExecContext(ctx, call, interval(pace), w.options.Name)
			return err
		})
		if err != nil && ctx.Err() == nil {
			w.options.Log.Error("requests cannot be waited for", "error", err)
			sleep(ctx, pace)
		}
		if err := w.beat(ctx); err != nil && ctx.Err() == nil {
			w.options.Log.Error("the server refuses a heartbeat", "error", err)
		}
	}
}

// beat says that the worker is there and renews its leases, and obeys the answers.
func (w *Worker) beat(ctx context.Context) error {
	info, _ := json.Marshal(w.options.Info)
	var held []*attempt
	var ids, tokens []int64
	for _, a := range w.attempts() {
		// One that is completed in a transaction is locked until that ends.
		if !a.isCompleted() {
			held, ids, tokens = append(held, a), append(ids, a.id), append(tokens, a.token)
		}
	}
	var command string
	answers := make([]sql.NullBool, len(held))
	err := w.control.do(ctx, func(conn *sql.Conn) error {
		own, cancel := context.WithTimeout(context.Background(), w.options.Lease+10*time.Second)
		defer cancel()
		const call = "SELECT jobs.worker_beat($1, $2, $3, $4)"
		err := conn.QueryRowContext(own, call,
			w.options.Name, w.queues, w.options.Concurrency, string(info)).Scan(&command)
		if err != nil || len(held) == 0 {
			return err
		}
		rows, err := conn.QueryContext(own,
			"SELECT cancel_requested FROM jobs.heartbeat_many($1, $2)", numbers(ids), numbers(tokens))
		if err != nil {
			return err
		}
		defer rows.Close()
		for i := 0; rows.Next(); i++ {
			if err := rows.Scan(&answers[i]); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	if err != nil {
		return err
	}
	w.obey(command)
	for i, a := range held {
		switch {
		case !answers[i].Valid && !a.isSettled() && !a.isCompleted():
			w.options.Log.Warn("a job was lost", "job", a.id)
			a.cancel(ErrLost)
		case answers[i].Bool:
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
