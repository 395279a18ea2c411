package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.org/jobs"
	"example.org/jobs/jobstest"
)

// What the cases cannot see of the library. It needs DATABASE_URL: a database with the extension.

var ctx = context.Background()

type mailArgs struct {
	To string `json:"to"`
	N  int64  `json:"n"`
	X  any    `json:"x"`
}

func (mailArgs) Kind() string { return "go test mail" }

// begin connects through pgx, and begins a transaction.
func begin(t *testing.T) (*pgxpool.Pool, pgx.Tx) {
	if os.Getenv("DATABASE_URL") == "" {
		t.Skip("DATABASE_URL is not set")
	}
	db, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		tx.Rollback(ctx)
		db.Close()
	})
	return db, tx
}

// beginSQL does it through database/sql and lib/pq.
func beginSQL(t *testing.T) (*sql.DB, *sql.Tx) {
	begin(t)
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		tx.Rollback()
		db.Close()
	})
	return db, tx
}

// queue is one of the test's own.
func queue(t *testing.T) string { return fmt.Sprintf("go %s %d", t.Name(), time.Now().UnixNano()) }

func TestArgsHaveATypeAndNumbersAreExact(t *testing.T) {
	db, tx := begin(t)
	options := jobs.InsertOpts{Queue: queue(t)}
	args := mailArgs{To: "ü", N: 9007199254740993, X: map[string]any{"big": 9007199254740993}}
	if _, err := jobs.Insert(ctx, tx, args, options); err != nil {
		t.Fatal(err)
	}
	found := jobstest.AssertInserted(t, tx, args.Kind(), map[string]any{"to": "ü"})
	if found.Queue != options.Queue || found.State != "available" || !strings.Contains(string(found.Args), "9007199254740993") {
		t.Errorf("%+v", found)
	}
	var got mailArgs
	worker := jobs.NewWorker(db, jobs.Options{Queues: []string{options.Queue}})
	jobs.Handle(worker, func(ctx context.Context, job *jobs.Job[mailArgs]) (any, error) {
		got = job.Args
		if job.Kind != args.Kind() || job.Attempt != 1 || time.Since(job.CreatedAt) > time.Hour {
			t.Errorf("%+v", job.JobRow)
		}
		if err := job.Progress(ctx, "half"); err != nil {
			t.Error(err)
		}
		return job.Args, job.Complete(ctx, tx, job.Args)
	})
	worked := jobstest.WorkAll(t, tx, worker)
	if len(worked) != 1 || worked[0].State != "completed" || worked[0].Kind != args.Kind() {
		t.Errorf("%+v", worked)
	}
	if got.N != args.N || fmt.Sprint(got.X) != "map[big:9007199254740993]" {
		t.Errorf("%+v", got)
	}
	var output string
	err := tx.QueryRow(ctx, "SELECT output->>'n' FROM jobs.jobs WHERE queue = $1", options.Queue).Scan(&output)
	if err != nil || output != "9007199254740993" {
		t.Errorf("%s %v", output, err)
	}
}

func TestArgsOfAnotherTypeFailTheAttempt(t *testing.T) {
	db, tx := begin(t)
	options := jobs.InsertOpts{Queue: queue(t)}
	if _, err := jobs.Insert(ctx, tx, args{mailArgs{}.Kind(), []byte(`{"n": "text"}`)}, options); err != nil {
		t.Fatal(err)
	}
	worker := jobs.NewWorker(db, jobs.Options{Queues: []string{options.Queue}})
	jobs.Handle(worker, func(context.Context, *jobs.Job[mailArgs]) (any, error) {
		t.Error("the handler runs")
		return nil, nil
	})
	if worked := jobstest.WorkAll(t, tx, worker); len(worked) != 1 || worked[0].State != "retryable" {
		t.Errorf("%+v", worked)
	}
}

func TestMiddlewareIsAroundInOrder(t *testing.T) {
	db, tx := begin(t)
	var order []string
	around := func(name string) func(jobs.Work) jobs.Work {
		return func(next jobs.Work) jobs.Work {
			return func(ctx context.Context, job *jobs.JobRow) (any, error) {
				order = append(order, name+" before")
				output, err := next(ctx, job)
				order = append(order, fmt.Sprint(name, " after ", err))
				return output, err
			}
		}
	}
	aroundInsert := func(name string) func(jobs.InsertFunc) jobs.InsertFunc {
		return func(next jobs.InsertFunc) jobs.InsertFunc {
			return func(ctx context.Context, db jobs.DB, list []jobs.NewJob) ([]jobs.Inserted, error) {
				order = append(order, name)
				return next(ctx, db, list)
			}
		}
	}
	producer := jobs.Producer{Around: []func(jobs.InsertFunc) jobs.InsertFunc{aroundInsert("one"), aroundInsert("two")}}
	options := jobs.InsertOpts{Queue: queue(t)}
	if _, err := producer.Insert(ctx, tx, mailArgs{}, options); err != nil {
		t.Fatal(err)
	}
	worker := jobs.NewWorker(db, jobs.Options{Queues: []string{options.Queue},
		Around: []func(jobs.Work) jobs.Work{around("outer"), around("inner")}})
	jobs.Handle(worker, func(context.Context, *jobs.Job[mailArgs]) (any, error) {
		order = append(order, "handler")
		return nil, jobs.Discard(errors.New("no"))
	})
	if worked := jobstest.WorkAll(t, tx, worker); len(worked) != 1 || worked[0].State != "discarded" {
		t.Errorf("%+v", worked)
	}
	want := []string{"one", "two", "outer before", "inner before", "handler", "inner after no", "outer after no"}
	if !reflect.DeepEqual(order, want) {
		t.Errorf("%q", order)
	}
}

func TestTimePassesInATest(t *testing.T) {
	db, tx := begin(t)
	options := jobs.InsertOpts{Queue: queue(t), Retry: jobs.Constant(time.Minute)}
	for _, at := range []time.Time{{}, time.Now().Add(time.Hour)} {
		options.ScheduledAt = at
		if _, err := jobs.Insert(ctx, tx, mailArgs{}, options); err != nil {
			t.Fatal(err)
		}
	}
	worker := jobs.NewWorker(db, jobs.Options{Queues: []string{options.Queue}})
	jobs.Handle(worker, func(_ context.Context, job *jobs.Job[mailArgs]) (any, error) {
		if job.Attempt == 1 {
			return nil, errors.New("once")
		}
		return nil, nil
	})
	for i, want := range []string{"[retryable]", "[retryable completed]", "[completed]", "[]"} {
		states := []string{}
		for _, job := range jobstest.WorkAll(t, tx, worker) {
			states = append(states, string(job.State))
		}
		if got := fmt.Sprint(states); got != want && got != "[completed retryable]" {
			t.Errorf("after %d hours: %s, not %s", i, got, want)
		}
		if err := jobstest.Advance(ctx, tx, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
}

func TestInsertsAndResults(t *testing.T) {
	db, tx := begin(t)
	zero := 0
	options := jobs.InsertOpts{Queue: queue(t), Priority: &zero, Timeout: jobs.NoTimeout,
		Unique: &jobs.Unique{ByArgPaths: []string{"to"}, ByQueue: true, OnConflict: jobs.OnConflictReject}}
	first, err := jobs.Insert(ctx, tx, mailArgs{To: "a"}, options)
	if err != nil || first.ID == 0 || first.State != "available" || first.Duplicate {
		t.Fatalf("%+v %v", first, err)
	}
	var priority int
	var timeout time.Duration
	if err := tx.QueryRow(ctx, "SELECT priority, timeout FROM jobs.jobs WHERE id = $1", first.ID).Scan(&priority, &timeout); err != nil || priority != 0 {
		t.Errorf("%d %s %v", priority, timeout, err)
	}
	if list, err := jobs.InsertMany(ctx, tx, nil); len(list) != 0 || err != nil {
		t.Errorf("none: %v %v", list, err)
	}
	conn, err := db.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	results, err := jobs.WaitFor[json.RawMessage](ctx, conn, []int64{first.ID}, time.Minute, jobs.Any)
	if err != nil || len(results) != 1 || results[0].State != "" || results[0].ID != first.ID || results[0].Output != nil {
		t.Errorf("%+v %v", results, err)
	}
	if _, err := jobs.Insert(ctx, tx, mailArgs{To: "a"}, options); err == nil || !strings.Contains(err.Error(), "exist") {
		t.Errorf("a rejected duplicate: %v", err)
	}
}

func TestAWorkerThatTheServerRefuses(t *testing.T) {
	db, _ := begin(t)
	worker := jobs.NewWorker(db, jobs.Options{Info: map[string]any{"nul": "\x00"}})
	jobs.Handle(worker, func(context.Context, *jobs.Job[mailArgs]) (any, error) { return nil, nil })
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	<-worker.Ready()
	select {
	case <-worker.Done():
	default:
		t.Error("it is ready")
	}
	if err := worker.Stop(); err == nil || !strings.Contains(err.Error(), "Unicode") {
		t.Errorf("it runs: %v", err)
	}
}

func TestAWorkerThatCannotConnectStops(t *testing.T) {
	begin(t)
	worker := jobs.OpenWorker("postgres://nobody@127.0.0.1:1/none", jobs.Options{})
	jobs.Handle(worker, func(context.Context, *jobs.Job[mailArgs]) (any, error) { return nil, nil })
	cancelled, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	if err := worker.Run(cancelled); err != nil {
		t.Error(err)
	}
}

func TestAWorkerOfAPoolWhoseURLIsMalformedFails(t *testing.T) {
	for _, url := range []string{"postgres://me:secret/x@h", "me:secret@h", "host='a", "port=x", "sslmode=x", "client_encoding=x"} {
		db, err := sql.Open("postgres", url)
		if err != nil {
			t.Fatal(err)
		}
		worker := jobs.NewWorker(db, jobs.Options{})
		jobs.Handle(worker, func(context.Context, *jobs.Job[mailArgs]) (any, error) { return nil, nil })
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		if err := worker.Run(limited); err == nil || limited.Err() != nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
		cancel()
	}
}

// A wait ends at once while there are jobs that the worker has no handler for.
func TestJobsOfOtherKindsAreNotAskedForAllTheTime(t *testing.T) {
	db, tx := begin(t)
	tx.Rollback(ctx)
	name := queue(t)
	if _, err := jobs.Insert(ctx, db, args{"of another kind", []byte("{}")}, jobs.InsertOpts{Queue: name}); err != nil {
		t.Fatal(err)
	}
	transactions := func() (count int) {
		const query = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
		if err := db.QueryRow(ctx, query).Scan(&count); err != nil {
			t.Fatal(err)
		}
		return count
	}
	worker := jobs.NewWorker(db, jobs.Options{Queues: []string{name}})
	jobs.Handle(worker, func(context.Context, *jobs.Job[mailArgs]) (any, error) { return nil, nil })
	before, begun := transactions(), time.Now()
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Second)
	if err := worker.Stop(); err != nil {
		t.Error(err)
	}
	// Two in 20 ms at most.
	if count, passed := transactions()-before, time.Since(begun); float64(count) > 200*passed.Seconds() {
		t.Errorf("%d transactions in %v", count, passed)
	}
}

func TestWhatAHandlerDidBeforeItFailedIsUndone(t *testing.T) {
	db, tx := begin(t)
	if _, err := tx.Exec(ctx, "CREATE TEMPORARY TABLE done (n int)"); err != nil {
		t.Fatal(err)
	}
	options := jobs.InsertOpts{Queue: queue(t)}
	for n := int64(1); n <= 5; n++ {
		if _, err := jobs.Insert(ctx, tx, mailArgs{N: n}, options); err != nil {
			t.Fatal(err)
		}
	}
	worker := jobs.NewWorker(db, jobs.Options{Queues: []string{options.Queue}, Timeout: time.Nanosecond})
	jobs.Handle(worker, func(ctx context.Context, job *jobs.Job[mailArgs]) (any, error) {
		if _, err := tx.Exec(ctx, "INSERT INTO done VALUES ($1)", job.Args.N); err != nil {
			t.Error(err)
		}
		switch job.Args.N {
		case 1:
			return "one", ctx.Err()
		case 2:
			panic("two")
		case 3:
			_, err := tx.Exec(ctx, "SELECT 1 / 0")
			return nil, jobs.Discard(err)
		case 4:
			return math.NaN(), nil
		}
		return "a\x00b", nil // which the database cannot hold
	})
	worked := jobstest.WorkAll(t, tx, worker)
	got := ""
	for _, one := range worked {
		got += fmt.Sprintf("%s %s %.30s; ", one.State, one.Output, one.Error)
	}
	want := `completed "one" ; retryable  two; discarded  ERROR: division by zero (SQLST; retryable  json: unsupported value: NaN; retryable  ERROR: unsupported Unicode esc; `
	if got != want {
		t.Errorf("%s", got)
	}
	var done string
	if err := tx.QueryRow(ctx, "SELECT string_agg(n::text, ' ') FROM done").Scan(&done); err != nil || done != "1" {
		t.Errorf("%s %v", done, err)
	}
}

func TestWorkAllTakesNoJobOutsideATransaction(t *testing.T) {
	db, _ := begin(t)
	options := jobs.InsertOpts{Queue: queue(t)}
	inserted, err := jobs.Insert(ctx, db, mailArgs{}, options)
	if err != nil {
		t.Fatal(err)
	}
	worker := jobs.NewWorker(db, jobs.Options{Queues: []string{options.Queue}})
	jobs.Handle(worker, func(context.Context, *jobs.Job[mailArgs]) (any, error) { return nil, nil })
	if _, err := worker.WorkAll(ctx, db); err == nil || !strings.Contains(err.Error(), "WorkAll needs a transaction: ") {
		t.Errorf("%v", err)
	}
	var state jobs.State
	if err := db.QueryRow(ctx, "SELECT state FROM jobs.jobs WHERE id = $1", inserted.ID).Scan(&state); err != nil || state != "available" {
		t.Errorf("%s %v", state, err)
	}
}

// The transaction is busy until the handler has returned.
func TestWorkAllWaitsForAHandlerOfBatches(t *testing.T) {
	db, tx := begin(t)
	options := jobs.InsertOpts{Queue: queue(t)}
	for n := int64(1); n <= 2; n++ {
		if _, err := jobs.Insert(ctx, tx, mailArgs{N: n}, options); err != nil {
			t.Fatal(err)
		}
	}
	worker := jobs.NewWorker(db, jobs.Options{Queues: []string{options.Queue}})
	jobs.HandleBatch(worker, func(_ context.Context, batch []*jobs.Job[mailArgs]) error {
		batch[0].End("early", nil)
		if _, err := tx.Exec(ctx, "SELECT pg_sleep(0.1)"); err != nil {
			t.Error(err)
		}
		return nil
	})
	worked := jobstest.WorkAll(t, tx, worker)
	if len(worked) != 2 || string(worked[0].Output) != `"early"` || worked[1].State != "completed" {
		t.Errorf("%+v", worked)
	}
}

func TestTenThousandJobs(t *testing.T) {
	db, tx := begin(t)
	tx.Rollback(ctx)
	name := queue(t)
	list := make([]jobs.NewJob, 10_000)
	for i := range list {
		list[i] = jobs.NewJob{Args: mailArgs{N: int64(i)}, InsertOpts: jobs.InsertOpts{Queue: name}}
	}
	if _, err := jobs.InsertMany(ctx, db, list); err != nil {
		t.Fatal(err)
	}
	var count int64
	worker := jobs.NewWorker(db, jobs.Options{Queues: []string{name}, Concurrency: 100})
	all := make(chan struct{})
	jobs.Handle(worker, func(context.Context, *jobs.Job[mailArgs]) (any, error) {
		if atomic.AddInt64(&count, 1) == int64(len(list)) {
			close(all)
		}
		return nil, nil
	})
	begun := time.Now()
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	<-all
	if err := worker.Stop(); err != nil {
		t.Error(err)
	}
	t.Logf("%d jobs in %v", len(list), time.Since(begun))
	var completed int
	err := db.QueryRow(ctx, "SELECT count(*) FROM jobs.jobs WHERE queue = $1 AND state = 'completed' AND attempt = 1", name).Scan(&completed)
	if err != nil || completed != len(list) {
		t.Errorf("%d are completed: %v", completed, err)
	}
}

type receipt struct{ N int64 }

func TestEveryConnection(t *testing.T) {
	pool, _ := begin(t)
	db, _ := beginSQL(t)
	pgxConn, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer pgxConn.Release()
	sqlConn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer sqlConn.Close()
	options := jobs.Options{Queues: []string{queue(t)}}
	worker := jobs.NewWorker(pool, options)
	jobs.Handle(worker, func(_ context.Context, job *jobs.Job[mailArgs]) (any, error) { return receipt{job.Args.N}, nil })
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	defer worker.Stop()
	for _, connection := range []jobs.DB{pool, pgxConn, pgxConn.Conn(), db, sqlConn} {
		inserted, err := jobs.Insert(ctx, connection, mailArgs{N: 9007199254740993}, jobs.InsertOpts{Queue: options.Queues[0]})
		if err != nil {
			t.Fatalf("%T: %v", connection, err)
		}
		results, err := jobs.WaitFor[receipt](ctx, connection, []int64{inserted.ID}, time.Minute, jobs.All)
		if err != nil || len(results) != 1 || results[0].State != "completed" || results[0].Output.N != 9007199254740993 {
			t.Errorf("%T: %+v %v", connection, results, err)
		}
	}
}

func TestErrorsHaveDetailAndHint(t *testing.T) {
	pool, _ := begin(t)
	_, tx := beginSQL(t)
	for _, connection := range []jobs.DB{pool, tx} {
		_, err := jobs.Insert(ctx, connection, mailArgs{}, jobs.InsertOpts{Unique: &jobs.Unique{ByArgPaths: []string{"tp"}}})
		var coded interface{ SQLState() string }
		if err == nil || !strings.Contains(err.Error(), "\nDETAIL: ") || !strings.Contains(err.Error(), "\nHINT: Did you mean \"to\"?") || !errors.As(err, &coded) {
			t.Errorf("%T: %v", connection, err)
		}
	}
}
