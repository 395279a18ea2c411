// Package readme has the blocks of README.md: ../../readme_test.go puts them where a comment names
// a part of them.
package readme

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.org/jobs"
	"example.org/jobs/jobsotel"
	"example.org/jobs/jobstest"
)

// README: type EmailArgs

// What the blocks take for given.

var (
	ctx    = context.Background()
	db     *pgxpool.Pool
	worker *jobs.Worker
	sent   sync.Map // to whom
)

type Receipt struct{ Sent bool }

func send(_ context.Context, to string) error {
	sent.Store(to, true)
	return nil
}

func signUp(ctx context.Context, tx pgx.Tx, email string) {
	must(jobs.Insert(ctx, tx, EmailArgs{To: email}))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Panic(err)
	}
	return value
}

func TestMain(m *testing.M) {
	db = must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")+"&search_path=readme"))
	must(db.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS readme"))
	must(db.Exec(ctx, "CREATE TABLE IF NOT EXISTS users (email text, welcomed boolean)"))
	worker = jobs.NewWorker(db, jobs.Options{})
	handleMail(worker)
	os.Exit(m.Run())
}

func handleMail(worker *jobs.Worker) {
	jobs.Handle(worker, func(ctx context.Context, job *jobs.Job[EmailArgs]) (any, error) {
		return nil, send(ctx, job.Args.To)
	})
}

// newArgs are those of no other job.
func newArgs(t *testing.T) EmailArgs {
	return EmailArgs{To: fmt.Sprintf("%s %d", t.Name(), time.Now().UnixNano())}
}

func begin(t *testing.T) pgx.Tx {
	tx := must(db.Begin(ctx))
	t.Cleanup(func() { tx.Rollback(ctx) })
	return tx
}

// TestAWorker is one that runs until its job is done.
func TestAWorker(t *testing.T) {
	args := newArgs(t)
	inserted := must(jobs.Insert(ctx, db, args, jobs.InsertOpts{Queue: "mail"}))
	go func() {
		must(jobs.WaitFor[any](ctx, db, []int64{inserted.ID}, time.Minute, jobs.All))
		must(0, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	}()
	// README: worker.Main()
	if _, isSent := sent.Load(args.To); !isSent {
		t.Error("the mail is not sent")
	}
}

func TestAPoolOfTheProgram(t *testing.T) {
	tx := begin(t)
	// README: jobs.NewWorker(db, jobs.Options{Queues
	handleMail(worker)
	args := newArgs(t)
	must(jobs.Insert(ctx, tx, args, jobs.InsertOpts{Queue: "mail"}))
	jobstest.WorkAll(t, tx, worker)
	if _, isSent := sent.Load(args.To); !isSent {
		t.Error("the mail is not sent")
	}
}

func TestInOneTransaction(t *testing.T) {
	args := newArgs(t)
	must(db.Exec(ctx, "INSERT INTO users VALUES ($1, false)", args.To))
	worker := jobs.NewWorker(db, jobs.Options{Queues: []string{args.To}})
	jobs.Handle(worker, func(ctx context.Context, job *jobs.Job[EmailArgs]) (any, error) {
		// README: job.Complete(ctx, tx, nil)
	})
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	inserted := must(jobs.Insert(ctx, db, args, jobs.InsertOpts{Queue: args.To}))
	// README: jobs.WaitFor[
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Stop(); err != nil {
		t.Error(err)
	}
	var welcomed bool
	if err := db.QueryRow(ctx, "SELECT welcomed FROM users WHERE email = $1", args.To).Scan(&welcomed); err != nil || !welcomed {
		t.Errorf("%v %v", welcomed, err)
	}
	if results[0].State != "completed" {
		t.Errorf("%+v", results[0])
	}
}

func TestBatches(t *testing.T) {
	tx := begin(t)
	worker := jobs.NewWorker(db, jobs.Options{})
	// README: jobs.HandleBatch(
	args := newArgs(t)
	must(jobs.Insert(ctx, tx, args))
	jobstest.WorkAll(t, tx, worker)
	if _, isSent := sent.Load(args.To); !isSent {
		t.Error("the mail is not sent")
	}
}

func TestSync(t *testing.T) {
	tx := begin(t)
	worker := jobs.NewWorker(db, jobs.Options{})
	handleMail(worker)
	// README: worker.Sync(
	want := []jobs.Change{{Object: "kind", Name: "email.send", Outcome: "created"}, {Object: "periodic job", Name: "digest", Outcome: "created"}}
	if err != nil || !slices.Equal(changes, want) {
		t.Errorf("%+v %v", changes, err)
	}
}

func TestInserting(t *testing.T) {
	tx := begin(t)
	// README: inserted, err = jobs.Insert(
	if err != nil || inserted.State != "scheduled" {
		t.Errorf("%+v %v", inserted, err)
	}
	if found := jobstest.AssertInserted(t, tx, "email.send", nil); found.Queue != "mail" {
		t.Errorf("%+v", found)
	}
}

// README: func TestWelcome(

// README: func logged(

func TestLogged(t *testing.T) {
	tx := begin(t)
	var said bytes.Buffer
	log.SetOutput(&said)
	defer log.SetOutput(os.Stderr)
	worker := jobs.NewWorker(db, jobs.Options{Around: []func(jobs.Work) jobs.Work{logged}})
	handleMail(worker)
	signUp(ctx, tx, "a@example.com")
	jobstest.WorkAll(t, tx, worker)
	if !strings.Contains(said.String(), "of kind email.send took ") {
		t.Error(said.String())
	}
}

func TestTenant(t *testing.T) {
	tx := begin(t)
	producer := jobs.Producer{Around: []func(jobs.InsertFunc) jobs.InsertFunc{tenant}}
	inserted := must(producer.Insert(ctx, tx, newArgs(t)))
	var tags []string
	must(0, tx.QueryRow(ctx, "SELECT tags FROM jobs.jobs WHERE id = $1", inserted.ID).Scan(&tags))
	if !slices.Equal(tags, []string{"tenant 7"}) {
		t.Error(tags)
	}
}

// TestOpenTelemetry: package jobsotel has tests of the spans.
func TestOpenTelemetry(t *testing.T) {
	tx := begin(t)
	// README: jobsotel.AroundInsert
	handleMail(worker)
	must(producer.Insert(ctx, tx, newArgs(t)))
	if worked := jobstest.WorkAll(t, tx, worker); worked[len(worked)-1].State != "completed" {
		t.Errorf("%+v", worked)
	}
}
