// The driver of the conformance suite: ../../conformance/README.md says what it does.
//
//	DATABASE_URL=postgres://.. go run . '{"worker": {"queues": ["default"]}}'
package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	_ "github.com/lib/pq"

	jobs "postgres_jobs"
	"postgres_jobs/jobstest"
)

type object = map[string]any

// later is when rollback_later is.
const later = 7 * time.Second

// seconds are how the suite gives durations.
type seconds float64

func (s seconds) duration() time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

// argument is what the driver is started with.
type argument struct {
	Worker     *workerOptions
	Middleware bool
	InProgram  bool `json:"in_program"`
}

type workerOptions struct {
	Queues      json.RawMessage
	Concurrency int
	Timeout     seconds
	Lease       seconds
	Grace       *seconds
	Name        string
	Info        object
	Kinds       map[string]struct{ Timeout *seconds }
	Otherwise   bool
	Again       string
}

var printing sync.Mutex

// printEvent prints a line at once.
func printEvent(event string, members object) {
	line := object{"event": event}
	for name, value := range members {
		line[name] = value
	}
	encoded, err := json.Marshal(line)
	if err != nil {
		log.Fatal(err)
	}
	printing.Lock()
	defer printing.Unlock()
	os.Stdout.Write(append(encoded, '\n'))
}

// driver is the program: a worker perhaps, and a producer.
type driver struct {
	db         *sql.DB
	worker     *jobs.Worker
	middleware []func(jobs.Work) jobs.Work
	producer   jobs.Producer
	tx         *sql.Tx // that of the operation testing
}

func main() {
	log.SetFlags(log.Lmicroseconds)
	var given argument
	if err := json.Unmarshal([]byte(os.Args[1]), &given); err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("postgres", databaseURL())
	if err != nil {
		log.Fatal(err)
	}
	d := &driver{db: db}
	if given.Middleware {
		d.producer.Around = append(d.producer.Around, aroundInsert)
		d.middleware = append(d.middleware, aroundWork)
	}
	if given.Worker == nil {
		d.operate()
		return
	}
	d.worker = d.newWorker(*given.Worker)
	go d.operate()
	var isReady atomic.Bool
	go func() {
		<-d.worker.Ready()
		select {
		case <-d.worker.Done(): // the server has refused it
		default:
			isReady.Store(true)
			printEvent("ready", nil)
		}
	}()
	if given.InProgram {
		if err = d.worker.Start(); err == nil {
			<-d.worker.Done()
			err = d.worker.Stop()
		}
	} else {
		err = d.worker.Run(context.Background())
	}
	if err != nil {
		log.Print(err)
		if isReady.Load() {
			os.Exit(1)
		}
		printEvent("unfit", object{"error": err.Error()})
		os.Exit(2)
	}
	printEvent("stopped", nil)
}

// databaseURL is where the suite wants us to connect, as lib/pq is to do it: without TLS, and with
// one round trip for each statement, so that a pooler sends all of it to one server.
func databaseURL() string {
	at, err := url.Parse(os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	parameters := at.Query()
	parameters.Set("sslmode", "disable")
	parameters.Set("binary_parameters", "yes")
	at.RawQuery = parameters.Encode()
	return at.String()
}

func (d *driver) newWorker(given workerOptions) *jobs.Worker {
	options := jobs.Options{
		Concurrency: given.Concurrency,
		Timeout:     given.Timeout.duration(),
		Lease:       given.Lease.duration(),
		Name:        given.Name,
		Info:        given.Info,
		Around:      d.middleware,
		NoPrepare:   strings.Contains(os.Getenv("DATABASE_URL"), "/transaction"), // of PgBouncer
	}
	if given.Grace != nil {
		options.Grace = given.Grace.duration()
		if options.Grace == 0 {
			options.Grace = jobs.NoGrace
		}
	}
	if given.Queues != nil && json.Unmarshal(given.Queues, &options.Queues) != nil {
		if err := json.Unmarshal(given.Queues, &options.Weights); err != nil {
			log.Fatal(err)
		}
		for queue := range options.Weights {
			options.Queues = append(options.Queues, queue)
		}
	}
	worker := jobs.NewWorker(d.db, options)
	if given.Kinds == nil {
		jobs.HandleKind(worker, "run", d.handle)
	}
	for kind, options := range given.Kinds {
		if options.Timeout == nil {
			jobs.HandleKind(worker, kind, d.handle)
		} else {
			jobs.HandleKind(worker, kind, d.handle, jobs.Timeout(options.Timeout.duration()))
		}
	}
	if given.Again != "" {
		jobs.HandleKind(worker, given.Again, d.handle)
	}
	if given.Otherwise {
		jobs.HandleOthers(worker, d.handle)
	}
	return worker
}

func aroundWork(next jobs.Work) jobs.Work {
	return func(ctx context.Context, job *jobs.JobRow) (any, error) {
		printEvent("middleware", object{"around": "work", "kind": job.Kind})
		return next(ctx, job)
	}
}

func aroundInsert(next jobs.InsertFunc) jobs.InsertFunc {
	return func(ctx context.Context, db jobs.DB, inserts []jobs.NewJob) ([]jobs.Inserted, error) {
		for i := range inserts {
			meta := object{"middleware": true}
			for name, value := range inserts[i].Meta {
				meta[name] = value
			}
			inserts[i].Meta = meta
			printEvent("middleware", object{"around": "insert", "kind": inserts[i].Args.Kind()})
		}
		return next(ctx, db, inserts)
	}
}

// handlerArgs are what a handler is to do.
type handlerArgs struct {
	Do, First, Later []action
}

// action is one thing of it.
type action struct {
	Say           any
	Describe      bool
	Sleep         *seconds
	SleepOn       *seconds `json:"sleep_on"`
	Return        json.RawMessage
	ReturnBad     string `json:"return_bad"`
	Fail          *string
	FailBadly     string `json:"fail_badly"`
	Snooze        *seconds
	Cancel        *string
	Discard       *string
	RetryIn       *seconds `json:"retry_in"`
	Progress      json.RawMessage
	SQL           string
	InTransaction string `json:"in_transaction"`
	Then          string
	ExitProcess   *int            `json:"exit_process"`
	DiscardNil    bool            `json:"discard_without_error"`
	RetryInNil    *seconds        `json:"retry_in_without_error"`
	SQLInTest     string          `json:"sql_in_test"`
	CompleteIn    json.RawMessage `json:"complete_in_test"`
}

func (d *driver) handle(ctx context.Context, job *jobs.Job[json.RawMessage]) (any, error) {
	var args handlerArgs
	_ = json.Unmarshal(job.Args, &args) // they may be any JSON
	actions := args.Do
	if actions == nil && job.Attempt == 1 {
		actions = args.First
	} else if actions == nil {
		actions = args.Later
	}
	for _, action := range actions {
		ends, output, err := d.act(ctx, job, action)
		if ends || err != nil {
			return output, err
		}
	}
	return nil, nil
}

// act does one action, and says whether the handler ends with it.
func (d *driver) act(ctx context.Context, job *jobs.Job[json.RawMessage], do action) (ends bool, output any, err error) {
	switch {
	case do.Say != nil:
		printEvent("said", object{"job": job.ID, "attempt": job.Attempt, "say": do.Say})
	case do.Describe:
		describe(job)
	case do.Sleep != nil:
		select {
		case <-time.After(do.Sleep.duration()):
		case <-ctx.Done():
			printEvent("cancelled", object{"job": job.ID, "why": whys[job.CancelledBecause()]})
			return true, nil, ctx.Err()
		}
	case do.SleepOn != nil:
		time.Sleep(do.SleepOn.duration())
	case do.Return != nil:
		return true, do.Return, nil
	case do.ReturnBad != "":
		return true, badOutput(do.ReturnBad), nil
	case do.Fail != nil:
		return true, nil, errors.New(*do.Fail)
	case do.FailBadly != "":
		return true, nil, failBadly(do.FailBadly)
	case do.Snooze != nil:
		return true, nil, jobs.Snooze(do.Snooze.duration())
	case do.Cancel != nil:
		return true, nil, jobs.Cancel(*do.Cancel)
	case do.Discard != nil:
		return true, nil, jobs.Discard(errors.New(*do.Discard))
	case do.RetryIn != nil:
		// Wrapped, as a program might do it.
		err := jobs.RetryIn(do.RetryIn.duration(), errors.New("later"))
		return true, nil, fmt.Errorf("%w", err)
	case do.DiscardNil:
		return true, nil, jobs.Discard(nil)
	case do.RetryInNil != nil:
		return true, nil, jobs.RetryIn(do.RetryInNil.duration(), nil)
	case do.Progress != nil:
		return false, nil, job.Progress(ctx, do.Progress)
	case do.SQL != "":
		_, err := d.db.ExecContext(ctx, do.SQL)
		return false, nil, err
	case do.InTransaction != "":
		return d.inTransaction(ctx, job, do.InTransaction, do.Then)
	case do.SQLInTest != "":
		_, err := d.tx.ExecContext(ctx, do.SQLInTest)
		return false, nil, err
	case do.CompleteIn != nil:
		return false, nil, job.Complete(ctx, d.tx, do.CompleteIn)
	case do.ExitProcess != nil:
		os.Exit(*do.ExitProcess)
	}
	return false, nil, nil
}

// whys are the words of the suite for why a handler is cancelled.
var whys = map[error]string{
	jobs.ErrTimeout: "timeout", jobs.ErrCancelled: "cancelled", jobs.ErrStopping: "stopping", jobs.ErrLost: "lost",
}

func describe(job *jobs.Job[json.RawMessage]) {
	var left any
	if !job.Deadline.IsZero() {
		left = time.Until(job.Deadline).Seconds()
	}
	tags := job.Tags
	if tags == nil {
		tags = []string{}
	}
	printEvent("described", object{"left": left, "job": object{
		"id": job.ID, "kind": job.Kind, "queue": job.Queue, "attempt": job.Attempt,
		"max_attempts": job.MaxAttempts, "priority": job.Priority, "args": job.Args,
		"meta": job.Meta, "tags": tags,
	}})
}

func (d *driver) inTransaction(ctx context.Context, job *jobs.Job[json.RawMessage], statement, then string) (bool, any, error) {
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return true, nil, err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, statement); err != nil {
		return true, nil, err
	}
	if err := job.Complete(ctx, tx, object{"in": "transaction"}); err != nil {
		return true, nil, err
	}
	if then == "rollback_later" {
		time.Sleep(later)
		then = "rollback"
	}
	switch then {
	case "rollback":
		tx.Rollback()
		return true, nil, errors.New("rolled back")
	case "exit":
		os.Exit(9)
	}
	if err := tx.Commit(); err != nil {
		return true, nil, err
	}
	switch then {
	case "commit_and_fail":
		return true, nil, errors.New("failed after the commit")
	case "commit_and_exit":
		os.Exit(9)
	}
	return true, object{"in": "handler"}, nil
}

type circle struct{ Next *circle }

// badOutput is what is no JSON, for this language or the database.
func badOutput(name string) any {
	switch name {
	case "nul":
		return "a\x00b"
	case "surrogate":
		return json.RawMessage(`"\ud800"`)
	case "circular":
		one := &circle{}
		one.Next = one
		return one
	case "deep":
		var deep any
		for i := 0; i < 100_000; i++ {
			deep = []any{deep}
		}
		return deep
	case "nan":
		return math.NaN()
	case "other":
		return func() {}
	case "huge":
		return strings.Repeat("x", 300_000_000)
	case "long":
		return make([]int8, 17_000_000)
	}
	printEvent("impossible", nil)
	return nil
}

type broken struct{}

func (broken) Error() string { panic("this error cannot be shown") }

func failBadly(name string) error {
	switch name {
	case "nul":
		return errors.New("a\x00b")
	case "surrogate":
		return errors.New("a\xed\xa0\x80b")
	case "huge":
		return errors.New(strings.Repeat("x", 100_000_000))
	case "empty":
		return errors.New("")
	case "nothing":
		panic(42)
	case "exit":
		runtime.Goexit()
	case "broken":
		return broken{}
	}
	printEvent("impossible", nil)
	return errors.New(name)
}

// args are those of any kind.
type args struct {
	kind string
	json.RawMessage
}

func (a args) Kind() string { return a.kind }

// insert is a job to be inserted, as the suite gives it.
type insert struct {
	Kind    string
	Args    json.RawMessage
	Options options
	options // in an array of jobs they stand beside the others
}

type options struct {
	Queue       string
	Priority    *int
	ScheduledAt time.Time `json:"scheduled_at"`
	MaxAttempts int       `json:"max_attempts"`
	Tags        []string
	Meta        object
	Timeout     seconds
	Retry       any
	ExpiresAt   time.Time `json:"expires_at"`
	Pending     bool
	Unique      *unique `json:"unique_opts"`
}

type unique struct {
	ByKind      bool         `json:"by_kind"`
	ByArgs      any          `json:"by_args"`
	ByMeta      []string     `json:"by_meta"`
	ByQueue     bool         `json:"by_queue"`
	ByPeriod    seconds      `json:"by_period"`
	ByState     []jobs.State `json:"by_state"`
	Window      seconds
	WindowFrom  string  `json:"window_from"`
	HoldFor     seconds `json:"hold_for"`
	HoldUntil   string  `json:"hold_until"`
	ExcludeKind bool    `json:"exclude_kind"`
	Key         string
	OnConflict  any `json:"on_conflict"`
	Wait        *bool
}

func (i insert) newJob() jobs.NewJob {
	o := i.Options
	if i.options.Queue != "" || i.options.Unique != nil || i.options.Meta != nil {
		o = i.options
	}
	if i.Args == nil {
		i.Args = json.RawMessage("{}")
	}
	return jobs.NewJob{Args: args{i.Kind, i.Args}, InsertOpts: jobs.InsertOpts{
		Queue: o.Queue, Priority: o.Priority, ScheduledAt: o.ScheduledAt, MaxAttempts: o.MaxAttempts,
		Tags: o.Tags, Meta: o.Meta, Timeout: o.Timeout.duration(), Retry: o.Retry,
		ExpiresAt: o.ExpiresAt, Pending: o.Pending, Unique: o.Unique.typed(),
	}}
}

func (u *unique) typed() *jobs.Unique {
	if u == nil {
		return nil
	}
	return &jobs.Unique{
		ByKind: u.ByKind, ByArgs: u.ByArgs, ByMeta: u.ByMeta, ByQueue: u.ByQueue,
		ByPeriod: u.ByPeriod.duration(), ByState: u.ByState, Window: u.Window.duration(),
		WindowFrom: u.WindowFrom, HoldFor: u.HoldFor.duration(), HoldUntil: u.HoldUntil,
		ExcludeKind: u.ExcludeKind, Key: u.Key, OnConflict: u.OnConflict, NoWait: u.Wait != nil && !*u.Wait,
	}
}

// operation is a line of stdin.
type operation struct {
	Op string
	insert
	Then    string
	Jobs    []insert
	IDs     []int64
	Timeout seconds
	Want    string
	Worker  workerOptions
	Steps   []step
}

type step struct {
	Insert         *insert
	SQL            string
	AssertInserted *insert `json:"assert_inserted"`
	Advance        *seconds
	WorkAll        bool `json:"work_all"`
}

// operate does what stdin says, until that ends.
func (d *driver) operate() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<28)
	for lines.Scan() {
		var op operation
		err := json.Unmarshal(lines.Bytes(), &op)
		if err == nil {
			err = d.do(context.Background(), op)
		}
		if err != nil {
			log.Printf("%s: %v", lines.Text(), err)
			var coded interface{ SQLState() string }
			if errors.As(err, &coded) {
				printEvent("refused", object{"code": coded.SQLState()})
			}
		}
	}
}

func (d *driver) do(ctx context.Context, op operation) error {
	switch op.Op {
	case "stop":
		go d.worker.Stop()
	case "stop_and_cancel":
		go d.worker.StopAndCancel()
	case "insert", "insert_many":
		return d.insert(ctx, op)
	case "wait_for":
		results, err := jobs.WaitFor(ctx, d.db, op.IDs, op.Timeout.duration(), op.Want)
		if err != nil {
			return err
		}
		list := []object{}
		for _, result := range results {
			list = append(list, object{
				"id": result.ID, "state": orNull(string(result.State)), "output": result.Output,
				"error": orNull(result.Error),
			})
		}
		printEvent("results", object{"results": list})
	case "check":
		d.check(op.Worker)
	case "testing":
		return d.test(ctx, op.Worker, op.Steps)
	default:
		return fmt.Errorf("unknown op %q", op.Op)
	}
	return nil
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func (d *driver) insert(ctx context.Context, op operation) error {
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if op.Op == "insert_many" {
		var list []jobs.NewJob
		for _, job := range op.Jobs {
			list = append(list, job.newJob())
		}
		inserted, err := d.producer.InsertMany(ctx, tx, list)
		if err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		shown := []object{}
		for _, one := range inserted {
			shown = append(shown, show(one))
		}
		printEvent("inserted_many", object{"jobs": shown})
		return nil
	}
	job := op.newJob()
	inserted, err := d.producer.Insert(ctx, tx, job.Args, job.InsertOpts)
	if err != nil {
		return err
	}
	if op.Then != "rollback" {
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	printEvent("inserted", show(inserted))
	return nil
}

func show(inserted jobs.Inserted) object {
	return object{"id": inserted.ID, "state": orNull(string(inserted.State)), "duplicate": inserted.Duplicate}
}

// check says what is wrong with options, which the library does at the start.
func (d *driver) check(options workerOptions) {
	worker := d.newWorker(options)
	var text any
	if err := worker.Start(); err != nil {
		text = err.Error()
	} else if err := worker.StopAndCancel(); err != nil {
		log.Print(err)
	}
	printEvent("checked", object{"error": text})
}

// test does the steps in a transaction that is rolled back.
func (d *driver) test(ctx context.Context, options workerOptions, steps []step) (err error) {
	if d.tx, err = d.db.BeginTx(ctx, nil); err != nil {
		return err
	}
	defer d.tx.Rollback()
	worker := d.newWorker(options)
	results := []any{}
	for _, step := range steps {
		result, err := d.testStep(ctx, worker, step)
		if err != nil {
			result = object{"error": err.Error()}
		}
		results = append(results, result)
	}
	printEvent("tested", object{"results": results})
	return nil
}

func (d *driver) testStep(ctx context.Context, worker *jobs.Worker, step step) (any, error) {
	switch {
	case step.Insert != nil:
		job := step.Insert.newJob()
		inserted, err := d.producer.Insert(ctx, d.tx, job.Args, job.InsertOpts)
		return inserted.ID, err
	case step.SQL != "":
		return d.rows(ctx, step.SQL)
	case step.AssertInserted != nil:
		found, err := jobstest.Find(ctx, d.tx, step.AssertInserted.Kind, step.AssertInserted.Args)
		return object{"id": found.ID, "kind": found.Kind, "queue": found.Queue, "state": found.State,
			"args": found.Args}, err
	case step.Advance != nil:
		return nil, jobstest.Advance(ctx, d.tx, step.Advance.duration())
	}
	worked, err := worker.WorkAll(ctx, d.tx)
	list := []object{}
	for _, one := range worked {
		list = append(list, object{"id": one.ID, "kind": one.Kind, "state": one.State, "output": one.Output,
			"error": orNull(one.Error)})
	}
	return list, err
}

// rows are those of a statement, each a list.
func (d *driver) rows(ctx context.Context, statement string) ([][]any, error) {
	rows, err := d.tx.QueryContext(ctx, statement)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	list := [][]any{}
	columns, _ := rows.Columns()
	for rows.Next() {
		row := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		for i, value := range row {
			if text, isText := value.([]byte); isText {
				row[i] = string(text)
			}
		}
		list = append(list, row)
	}
	return list, rows.Err()
}
