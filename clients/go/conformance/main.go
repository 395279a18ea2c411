// The driver of the conformance suite: ../../conformance/README.md says what it does.
//
//	DATABASE_URL=postgres://.. go run . '{"worker": {"queues": ["default"]}}'
//
// With JOBS_DRIVER=pq it connects through database/sql and lib/pq, otherwise through pgx.
package main

import (
	"bufio"
	"cmp"
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
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/lib/pq"

	"example.org/jobs"
	"example.org/jobs/internal/database"
	"example.org/jobs/jobstest"
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
	Kinds      map[string]kindOptions // without a worker
	Middleware bool
	Hooks      any  // true or "raise"
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
	Prefetch    int
	Kinds       map[string]kindOptions
	Periodic    []struct {
		Name, Cron, Kind string
		Args             json.RawMessage
		TimeZone         string `json:"time_zone"`
	}
	Otherwise bool
	Again     string
	Cells     bool
}

type kindOptions struct {
	Timeout     *seconds
	Concurrency *int
	Batch       *struct {
		Size   *int
		Linger seconds
	}
	Defaults *options
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
	pool       *pgxpool.Pool // one of them
	sql        *sql.DB
	db         jobs.DB
	pools      []*pgxpool.Pool // of cells: one list of them
	sqls       []*sql.DB
	cells      *jobs.Cells
	worker     *jobs.Worker
	hooks      any
	middleware []func(jobs.Work) jobs.Work
	producer   jobs.Producer
	tx         transaction // that of the operation testing
}

// transaction is one of either library.
type transaction struct {
	jobs.DB
	commit, rollback func() error
}

// inTransactionMode is whether PgBouncer is.
var inTransactionMode = strings.Contains(os.Getenv("DATABASE_URL"), "/transaction")

// connect makes the pool of the driver's own statements, of producers, and of workers.
func (d *driver) connect() (err error) {
	if os.Getenv("JOBS_DRIVER") == "pq" {
		d.sql, err = openSQL(os.Getenv("DATABASE_URL"))
		for _, at := range strings.Fields(os.Getenv("CELL_URLS")) {
			pool, failure := openSQL(at)
			d.sqls, err = append(d.sqls, pool), cmp.Or(err, failure)
		}
		d.db, d.cells = d.sql, jobs.NewCells(d.sqls...)
		return err
	}
	d.pool, err = openPool(os.Getenv("DATABASE_URL"))
	for _, at := range strings.Fields(os.Getenv("CELL_URLS")) {
		pool, failure := openPool(at)
		d.pools, err = append(d.pools, pool), cmp.Or(err, failure)
	}
	d.db, d.cells = d.pool, jobs.NewCells(d.pools...)
	return err
}

// openSQL makes a pool without TLS, and with one round trip for each statement, so that a pooler
// sends all of it to one server.
func openSQL(at string) (*sql.DB, error) {
	return sql.Open("postgres", withParameters(at, "sslmode", "disable", "binary_parameters", "yes"))
}

func openPool(at string) (*pgxpool.Pool, error) {
	mode := "cache_statement"
	if inTransactionMode {
		mode = "exec"
	}
	return pgxpool.New(context.Background(), withParameters(at, "pool_max_conns", "50", "default_query_exec_mode", mode))
}

func (d *driver) begin(ctx context.Context) (transaction, error) {
	if d.pool != nil {
		tx, err := d.pool.Begin(ctx)
		if err != nil {
			return transaction{}, err
		}
		return transaction{tx, func() error { return tx.Commit(ctx) }, func() error { return tx.Rollback(context.Background()) }}, nil
	}
	tx, err := d.sql.BeginTx(ctx, nil)
	if err != nil {
		return transaction{}, err
	}
	return transaction{tx, tx.Commit, tx.Rollback}, nil
}

func main() {
	log.SetFlags(log.Lmicroseconds)
	var given argument
	if err := json.Unmarshal([]byte(os.Args[1]), &given); err != nil {
		log.Fatal(err)
	}
	definitions = given.Kinds
	d := &driver{hooks: given.Hooks}
	err := d.connect()
	if err != nil {
		log.Fatal(err)
	}
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
	go func() {
		<-d.worker.Ready()
		select {
		case <-d.worker.Done(): // the server has refused it
		default:
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
		select {
		case <-d.worker.Done():
			printEvent("failed", object{"error": err.Error()})
			os.Exit(1)
		default: // it cannot start
			printEvent("unfit", object{"error": err.Error()})
			os.Exit(2)
		}
	}
	printEvent("stopped", nil)
}

// withParameters is where the suite wants us to connect, with these parameters.
func withParameters(to string, parameters ...string) string {
	at, err := url.Parse(to)
	if err != nil {
		log.Fatal(err)
	}
	query := at.Query()
	for i := 0; i < len(parameters); i += 2 {
		if !query.Has(parameters[i]) {
			query.Set(parameters[i], parameters[i+1])
		}
	}
	at.RawQuery = query.Encode()
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
		NoPrepare:   inTransactionMode,
		Prefetch:    given.Prefetch,
	}
	if d.hooks != nil {
		options.OnError = d.hook("error")
		options.OnDiscarded = d.hook("discarded")
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
	var worker *jobs.Worker
	switch {
	case given.Cells && d.pool != nil:
		worker = jobs.NewWorker(d.pools, options)
	case given.Cells:
		worker = jobs.NewWorker(d.sqls, options)
	case d.pool != nil:
		worker = jobs.NewWorker(d.pool, options)
	default:
		worker = jobs.NewWorker(d.sql, options)
	}
	if given.Kinds == nil {
		jobs.HandleKind(worker, "run", d.handle)
	}
	definitions = given.Kinds
	for name, kind := range given.Kinds {
		var with []jobs.HandlerOption
		if kind.Timeout != nil {
			with = append(with, jobs.Timeout(kind.Timeout.duration()))
		}
		if kind.Concurrency != nil {
			with = append(with, jobs.Concurrency(*kind.Concurrency))
		}
		if kind.Batch != nil {
			size := 100
			if kind.Batch.Size != nil {
				size = *kind.Batch.Size
			}
			with = append(with, jobs.Batch(size, kind.Batch.Linger.duration()))
		}
		switch {
		case name == "one" && kind.Defaults != nil:
			handleArgs[oneArgs](d, worker, kind, with)
		case name == "two" && kind.Defaults != nil:
			handleArgs[twoArgs](d, worker, kind, with)
		case kind.Batch != nil:
			jobs.HandleKindBatch(worker, name, d.handleBatch, with...)
		default:
			jobs.HandleKind(worker, name, d.handle, with...)
		}
	}
	for _, one := range given.Periodic {
		worker.Periodic(one.Name, one.Cron, args{one.Kind, orEmpty(one.Args)}, jobs.PeriodicOpts{TimeZone: one.TimeZone})
	}
	if given.Again != "" {
		jobs.HandleKind(worker, given.Again, d.handle)
	}
	if given.Otherwise {
		jobs.HandleOthers(worker, d.handle)
	}
	return worker
}

// definitions are of the kinds whose args have a type.
var definitions map[string]kindOptions

func defaultsOf(kind string) (defaults jobs.InsertOpts) {
	if given := definitions[kind].Defaults; given != nil {
		defaults = given.typed()
	}
	return defaults
}

type (
	oneArgs struct{ json.RawMessage }
	twoArgs struct{ json.RawMessage }
)

func (oneArgs) Kind() string                { return "one" }
func (twoArgs) Kind() string                { return "two" }
func (oneArgs) InsertOpts() jobs.InsertOpts { return defaultsOf("one") }
func (twoArgs) InsertOpts() jobs.InsertOpts { return defaultsOf("two") }

// handleArgs sets the handler of args that have a type.
func handleArgs[A jobs.Args](d *driver, worker *jobs.Worker, kind kindOptions, with []jobs.HandlerOption) {
	raw := func(job *jobs.Job[A]) *jobs.Job[json.RawMessage] {
		return &jobs.Job[json.RawMessage]{JobRow: job.JobRow, Args: job.RawArgs}
	}
	if kind.Batch == nil {
		jobs.Handle(worker, func(ctx context.Context, job *jobs.Job[A]) (any, error) { return d.handle(ctx, raw(job)) }, with...)
		return
	}
	jobs.HandleBatch(worker, func(ctx context.Context, batch []*jobs.Job[A]) error {
		var list []*jobs.Job[json.RawMessage]
		for _, job := range batch {
			list = append(list, raw(job))
		}
		return d.handleBatch(ctx, list)
	}, with...)
}

func (d *driver) hook(name string) func(*jobs.JobRow, error) {
	return func(job *jobs.JobRow, err error) {
		printEvent("hook", object{"hook": name, "job": job.ID, "error": err.Error()})
		if d.hooks == "raise" {
			panic("the hook " + name + " fails")
		}
	}
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
	Leave         bool
	Raise         *string
	Block         *seconds
}

func (d *driver) handle(ctx context.Context, job *jobs.Job[json.RawMessage]) (any, error) {
	for _, action := range actionsOf(job) {
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
			printEvent("cancelled", object{"job": job.ID, "why": whys[context.Cause(ctx)]})
			return true, nil, ctx.Err()
		}
	case do.SleepOn != nil:
		time.Sleep(do.SleepOn.duration())
	case do.Block != nil:
		printEvent("impossible", nil)
		return true, nil, nil
	case do.Leave:
		return true, nil, errLeave
	case do.Raise != nil:
		return true, nil, raised{errors.New(*do.Raise)}
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
		return false, nil, database.Exec(ctx, d.db, do.SQL)
	case do.InTransaction != "":
		return d.inTransaction(ctx, job, do.InTransaction, do.Then)
	case do.SQLInTest != "":
		return false, nil, database.Exec(ctx, d.tx.DB, do.SQLInTest)
	case do.CompleteIn != nil:
		return false, nil, job.Complete(ctx, d.tx.DB, do.CompleteIn)
	case do.ExitProcess != nil:
		os.Exit(*do.ExitProcess)
	}
	return false, nil, nil
}

func actionsOf(job *jobs.Job[json.RawMessage]) []action {
	var args handlerArgs
	_ = json.Unmarshal(job.Args, &args) // they may be any JSON
	switch {
	case args.Do != nil:
		return args.Do
	case job.Attempt == 1:
		return args.First
	}
	return args.Later
}

// handleBatch ends each job by its actions.
func (d *driver) handleBatch(ctx context.Context, batch []*jobs.Job[json.RawMessage]) error {
	ids := []int64{}
	for _, job := range batch {
		ids = append(ids, job.ID)
	}
	printEvent("batch", object{"jobs": ids})
	for _, job := range batch {
		output, err := d.handle(ctx, job)
		if raised := (raised{}); errors.As(err, &raised) {
			return raised.error
		} else if err != nil && ctx.Err() != nil {
			return ctx.Err()
		} else if err != errLeave {
			job.End(output, err)
		}
	}
	return nil
}

// The ends of actions that are only for batches.
type raised struct{ error }

var errLeave = errors.New("leave")

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
	tx, err := d.begin(ctx)
	if err != nil {
		return true, nil, err
	}
	defer tx.rollback()
	if err := database.Exec(ctx, tx.DB, statement); err != nil {
		return true, nil, err
	}
	if err := job.Complete(ctx, tx.DB, object{"in": "transaction"}); err != nil {
		return true, nil, err
	}
	if then == "rollback_later" {
		time.Sleep(later)
		then = "rollback"
	}
	switch then {
	case "rollback":
		tx.rollback()
		return true, nil, errors.New("rolled back")
	case "exit":
		os.Exit(9)
	}
	if err := tx.commit(); err != nil {
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
	OfKind  bool `json:"of_kind"`
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
	Retry       *retry
	ExpiresAt   time.Time `json:"expires_at"`
	Pending     bool
	Unique      *unique `json:"unique_opts"`
}

type unique struct {
	ByKind      bool         `json:"by_kind"`
	ByArgs      any          `json:"by_args"` // true or paths
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

type retry struct {
	Strategy     string
	Initial, Max seconds
}

func (i insert) newJob() jobs.NewJob {
	o := i.Options
	if i.options.Queue != "" || i.options.Unique != nil || i.options.Meta != nil || i.options.Priority != nil {
		o = i.options
	}
	raw := orEmpty(i.Args)
	job := jobs.NewJob{Args: args{i.Kind, raw}, InsertOpts: o.typed()}
	if i.OfKind {
		job.Args = map[string]jobs.Args{"one": oneArgs{raw}, "two": twoArgs{raw}}[i.Kind]
	}
	return job
}

func orEmpty(args json.RawMessage) json.RawMessage {
	if args == nil {
		return json.RawMessage("{}")
	}
	return args
}

func (o options) typed() jobs.InsertOpts {
	typed := jobs.InsertOpts{
		Queue: o.Queue, Priority: o.Priority, ScheduledAt: o.ScheduledAt, MaxAttempts: o.MaxAttempts,
		Tags: o.Tags, Meta: o.Meta, Timeout: o.Timeout.duration(),
		ExpiresAt: o.ExpiresAt, Pending: o.Pending, Unique: o.Unique.typed(),
	}
	if o.Retry != nil {
		typed.Retry = jobs.Retry{Strategy: o.Retry.Strategy, Initial: o.Retry.Initial.duration(), Max: o.Retry.Max.duration()}
	}
	return typed
}

func (u *unique) typed() *jobs.Unique {
	if u == nil {
		return nil
	}
	typed := &jobs.Unique{
		ByKind: u.ByKind, ByArgs: u.ByArgs == true, ByMeta: u.ByMeta, ByQueue: u.ByQueue,
		ByPeriod: u.ByPeriod.duration(), ByState: u.ByState, Window: u.Window.duration(),
		WindowFrom: u.WindowFrom, HoldFor: u.HoldFor.duration(), HoldUntil: u.HoldUntil,
		ExcludeKind: u.ExcludeKind, Key: u.Key, NoWait: u.Wait != nil && !*u.Wait,
	}
	if paths, arePaths := u.ByArgs.([]any); arePaths {
		for _, path := range paths {
			typed.ByArgPaths = append(typed.ByArgPaths, fmt.Sprint(path))
		}
	}
	switch then := u.OnConflict.(type) {
	case string:
		typed.OnConflict = map[string]jobs.OnConflict{"skip": jobs.OnConflictSkip, "reject": jobs.OnConflictReject,
			"replace": jobs.OnConflictReplace, "replace_except_schedule": jobs.OnConflictReplaceExceptSchedule}[then]
	case object:
		fields := map[jobs.State][]string{}
		for state, names := range then["update"].(object) {
			for _, name := range names.([]any) {
				fields[jobs.State(state)] = append(fields[jobs.State(state)], name.(string))
			}
		}
		typed.OnConflict = jobs.OnConflictUpdate(fields)
	}
	return typed
}

// operation is a line of stdin.
type operation struct {
	Op string
	insert
	Then    string
	Cells   bool
	Jobs    []insert
	IDs     []int64
	Timeout seconds
	Want    jobs.Want
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
				printEvent("refused", object{"code": coded.SQLState(), "error": err.Error()})
			} else if op.Cells {
				printEvent("refused", object{"code": nil, "error": err.Error()})
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
	case "insert", "insert_many", "insert_of_kind":
		return d.insert(ctx, op)
	case "sync":
		return d.sync(ctx, op)
	case "wait_for":
		results, err := jobs.WaitFor[json.RawMessage](ctx, d.db, op.IDs, op.Timeout.duration(), op.Want)
		if err != nil {
			return err
		}
		list := []object{}
		for _, result := range results {
			list = append(list, object{
				"id": result.ID, "state": orNull(result.State), "output": result.Output,
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

func orNull[T comparable](value T) any {
	if value == *new(T) {
		return nil
	}
	return value
}

func (d *driver) insert(ctx context.Context, op operation) error {
	tx, err := d.begin(ctx)
	if err != nil {
		return err
	}
	defer tx.rollback()
	if op.Cells {
		tx.DB = d.cells
	}
	if op.Op == "insert_many" {
		var list []jobs.NewJob
		for _, job := range op.Jobs {
			list = append(list, job.newJob())
		}
		inserted, err := d.producer.InsertMany(ctx, tx.DB, list)
		if err != nil {
			return err
		}
		if err := tx.commit(); err != nil {
			return err
		}
		shown := []object{}
		for _, one := range inserted {
			shown = append(shown, show(one))
		}
		printEvent("inserted_many", object{"jobs": shown})
		return nil
	}
	op.OfKind = op.Op == "insert_of_kind"
	job := op.newJob()
	inserted, err := d.producer.Insert(ctx, tx.DB, job.Args, job.InsertOpts)
	if err != nil {
		return err
	}
	if op.Then != "rollback" {
		if err := tx.commit(); err != nil {
			return err
		}
	}
	printEvent("inserted", show(inserted))
	return nil
}

func show(inserted jobs.Inserted) object {
	return object{"id": orNull(inserted.ID), "state": orNull(inserted.State), "duplicate": inserted.Duplicate}
}

// sync writes what a worker declares.
func (d *driver) sync(ctx context.Context, op operation) error {
	tx, err := d.begin(ctx)
	if err != nil {
		return err
	}
	defer tx.rollback()
	changes, err := d.newWorker(op.Worker).Sync(ctx, tx.DB)
	if err != nil {
		return err
	}
	if op.Then != "rollback" {
		if err := tx.commit(); err != nil {
			return err
		}
	}
	shown := [][]string{}
	for _, change := range changes {
		shown = append(shown, []string{change.Object, change.Name, change.Outcome})
	}
	printEvent("synced", object{"changes": shown})
	return nil
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
	if d.tx, err = d.begin(ctx); err != nil {
		return err
	}
	defer d.tx.rollback()
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
		inserted, err := d.producer.Insert(ctx, d.tx.DB, job.Args, job.InsertOpts)
		return inserted.ID, err
	case step.SQL != "":
		return d.rows(ctx, step.SQL)
	case step.AssertInserted != nil:
		found, err := jobstest.Find(ctx, d.tx.DB, step.AssertInserted.Kind, step.AssertInserted.Args)
		return object{"id": found.ID, "kind": found.Kind, "queue": found.Queue, "state": found.State,
			"args": found.Args}, err
	case step.Advance != nil:
		return nil, jobstest.Advance(ctx, d.tx.DB, step.Advance.duration())
	}
	worked, err := worker.WorkAll(ctx, d.tx.DB)
	list := []object{}
	for _, one := range worked {
		list = append(list, object{"id": one.ID, "kind": one.Kind, "state": one.State, "output": one.Output,
			"error": orNull(one.Error)})
	}
	return list, err
}

// rows are those of a statement, each a list.
func (d *driver) rows(ctx context.Context, statement string) (list [][]any, err error) {
	if tx, isPgx := d.tx.DB.(pgx.Tx); isPgx {
		rows, err := tx.Query(ctx, statement)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
	}
	rows, err := d.tx.DB.(*sql.Tx).QueryContext(ctx, statement)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
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
