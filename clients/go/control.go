package jobs

import (
	"context"
	"encoding/json"
	"time"
)

// controlLoop says that the worker is there and renews leases, and hears what is asked of it.
func (w *Worker) controlLoop(ctx context.Context) {
	pace := w.options.Lease / 3
	if pace > 10*time.Second {
		pace = 10 * time.Second
	}
	for ctx.Err() == nil {
		const call = "CALL jobs.wait_any('{}', timeout => $1, worker => $2)"
		err := w.control.value(ctx, 0, nil, call, interval(pace), w.options.Name)
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
	held := w.attempts(func(a *attempt) bool { return !a.told.Load() })
	var ids, tokens []int64
	for _, a := range held {
		ids, tokens = append(ids, a.row.ID), append(tokens, a.token)
	}
	const call = `SELECT json_build_object('command', jobs.worker_beat($1, $2, $3, $4),
		'cancel', (SELECT json_agg(h.cancel_requested) FROM jobs.heartbeat_many($5, $6) h))`
	var encoded []byte
	err := w.control.value(ctx, w.options.Lease+10*time.Second, &encoded, call,
		w.options.Name, w.queues, w.options.Concurrency, string(w.info), numbers(ids), numbers(tokens))
	if err != nil {
		return err
	}
	var answer struct {
		Command string
		Cancel  []*bool // null where the job is lost
	}
	if err := json.Unmarshal(encoded, &answer); err != nil {
		return err
	}
	w.change(func() { w.command = answer.Command })
	if answer.Command == "stop" {
		w.raiseQuit()
	}
	for i, cancel := range answer.Cancel {
		switch a := held[i]; {
		case cancel == nil && !a.settled.Load() && !a.completed.Load():
			w.options.Log.Warn("a job was lost", "job", a.row.ID)
			a.told.Store(true)
			a.cancel(ErrLost)
		case cancel != nil && *cancel && !a.completed.Load():
			a.cancel(ErrCancelled)
		}
	}
	return nil
}
