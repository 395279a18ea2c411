package jobs

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"example.org/jobs/internal/database"
)

// fake stands for a database: it has jobs to fetch, and answers finish_many as a test says.
type fake struct {
	beat   func() (command string, err error)
	finish func(ctx context.Context, results []result) (reasons []string, err error)

	patience time.Duration // of the worker, for a call of results
	log      heard         // what the worker logs
	open     int           // how many connections there are at most; 0 is no limit

	connect func(context.Context) error // of a test that is to see or refuse that

	fetch chan chan struct{} // gets what a fetch is answered after; none: it is answered at once

	mu            sync.Mutex
	connections   int            // that were made
	jobs          []string       // their args
	kept          map[string]int // how often a heartbeat named this id
	silentResults int            // how many calls of results are not answered
	silentWaits   bool           // a wait that is to end does not
	waits         []error        // with which the next waits for jobs end, at once
}

// result is what a worker tells of an attempt.
type result struct {
	ID      int64
	Do      string
	Details object
}

func (s *fake) Driver() driver.Driver { return nil }

func (s *fake) Connect(ctx context.Context) (driver.Conn, error) {
	if s.connect != nil {
		if err := s.connect(ctx); err != nil {
			return nil, err
		}
	}
	return connect(s), nil
}

type connection struct {
	*fake
	ctx context.Context // done: it is closed
	end context.CancelFunc
}

func connect(s *fake) connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connections++
	ctx, end := context.WithCancel(context.Background())
	return connection{s, ctx, end}
}

func (connection) Prepare(string) (driver.Stmt, error) { return nil, driver.ErrSkip }
func (connection) Begin() (driver.Tx, error)           { return nil, driver.ErrSkip }
func (c connection) Close() error                      { c.end(); return nil }

func (c connection) QueryContext(ctx context.Context, call string, args []driver.NamedValue) (driver.Rows, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case strings.Contains(call, "pg_extension"):
		return &rows{{[]byte(`{"Database": "d", "User": "u", "Host": "h", "Version": "0.1.0"}`)}}, nil
	case strings.Contains(call, "jobs.placements"):
		return &rows{{[]byte(`{"Database": "d"}`)}}, nil
	case strings.Contains(call, "worker_leave"):
		return &rows{{true}}, nil
	case strings.Contains(call, "worker_beat"):
		command, err := "run", error(nil)
		if c.beat != nil {
			command, err = c.beat()
		}
		return &rows{{command}}, err
	case strings.Contains(call, "heartbeat_many"):
		answer := &rows{}
		for _, id := range strings.FieldsFunc(args[0].Value.(string), func(r rune) bool { return strings.ContainsRune(`{}",`, r) }) {
			c.kept[id]++
			*answer = append(*answer, []driver.Value{false})
		}
		return answer, nil
	case strings.Contains(call, "fetch_any"):
		if c.fetch != nil {
			c.mu.Unlock()
			answer := make(chan struct{})
			c.fetch <- answer
			<-answer
			c.mu.Lock()
		}
		answer := &rows{}
		for i, jobArgs := range c.jobs {
			*answer = append(*answer, []driver.Value{int64(i + 1), int64(7), "k", "default", []byte(jobArgs),
				int64(1), int64(1), int64(25), nil, 0.0, 0.0, 0.0, "Infinity", 1.0})
		}
		c.jobs = nil
		return answer, nil
	case strings.Contains(call, "jobs.heartbeat("):
		return nil, stated{"55000"}
	case strings.Contains(call, "finish_many") && c.silentResults > 0:
		c.silentResults--
		ctx = c.ctx // as lib/pq, which goes on with what is to end
	case strings.Contains(call, "finish_many"):
		var results []result
		if err := json.Unmarshal([]byte(args[0].Value.(string)), &results); err != nil {
			return nil, err
		}
		c.mu.Unlock()
		reasons, err := c.finish(ctx, results)
		c.mu.Lock()
		answer := &rows{}
		for _, reason := range reasons {
			*answer = append(*answer, []driver.Value{reason, "completed"})
		}
		return answer, err
	}
	if isOfFetch := strings.Contains(call, "wait_any($1"); isOfFetch && len(c.waits) > 0 {
		err := c.waits[0]
		c.waits = c.waits[1:]
		return &rows{}, err
	}
	if c.silentWaits {
		ctx = c.ctx
	}
	c.mu.Unlock() // a wait
	<-ctx.Done()
	c.mu.Lock()
	return nil, ctx.Err()
}

type rows [][]driver.Value

func (r *rows) Close() error { return nil }

func (r *rows) Columns() []string {
	if len(*r) == 0 {
		return nil
	}
	return make([]string, len((*r)[0]))
}

func (r *rows) Next(into []driver.Value) error {
	if len(*r) == 0 {
		return io.EOF
	}
	copy(into, (*r)[0])
	*r = (*r)[1:]
	return nil
}

// waitsLeft is how many of waits have not ended.
func (s *fake) waitsLeft() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waits)
}

// begin starts a worker of a server, whose handlers return at once.
func (s *fake) begin(t *testing.T) *Worker {
	s.kept = map[string]int{}
	db := sql.OpenDB(s)
	db.SetMaxOpenConns(s.open)
	w := NewWorker(db, Options{Name: "w", NoPrepare: true, Concurrency: 2, Grace: time.Hour, Log: s.log.logger()})
	HandleKind(w, "k", func(context.Context, *Job[json.RawMessage]) (any, error) { return nil, nil })
	if s.patience > 0 {
		w.cells[0].finishing.patience = s.patience
	}
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	<-w.Ready()
	return w
}

func TestAResultWhoseJobIsLockedIsSentAgain(t *testing.T) {
	calls, isLocked := make(chan int64, 100), true
	s := &fake{jobs: []string{"1", "2"}}
	s.finish = func(_ context.Context, results []result) (reasons []string, err error) {
		for _, one := range results {
			reason := ""
			if one.ID == 1 && isLocked {
				reason, isLocked = "locked", false
			}
			reasons = append(reasons, reason)
			calls <- one.ID
		}
		return reasons, nil
	}
	w := s.begin(t)
	count := map[int64]int{}
	for i := 0; i < 3; i++ {
		count[<-calls]++
	}
	if err := w.Stop(); err != nil || count[1] != 2 || count[2] != 1 || len(calls) > 0 {
		t.Errorf("the results were sent so often: %v (%v)", count, err)
	}
}

func TestAResultWhoseJobIsLockedHoldsItsPlace(t *testing.T) {
	w := NewWorker(sql.OpenDB(&fake{}), Options{})
	a := attemptOf()
	a.row.Queue, a.cell = "default", w.cells[0]
	w.held[a] = true
	w.cells[0].results = make(chan *attempt, 1)
	for want := 1; want <= 2; want++ {
		w.tellAgain(a, errors.New("locked"))
		if _, places := w.cells[0].plan(); places != 9 || a.failures != want || len(w.list(w.held)) != 1 {
			t.Errorf("it has %d places after %d calls", places, a.failures)
		}
		<-w.cells[0].results
	}
}

func TestACallOfResultsThatHangsIsCutOff(t *testing.T) {
	s := &fake{jobs: []string{"1"}, patience: 10 * time.Millisecond}
	calls := make(chan struct{}, 1000)
	s.finish = func(ctx context.Context, results []result) ([]string, error) {
		calls <- struct{}{}
		if len(calls) < 3 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return []string{""}, nil
	}
	w := s.begin(t)
	for len(calls) < 3 {
		time.Sleep(time.Millisecond)
	}
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
}

// It takes two seconds and a pause for each of the three calls.
func TestACallThatGoesOnInSilenceIsLeftAndItsConnectionClosed(t *testing.T) {
	t.Parallel()
	s := &fake{jobs: []string{"1"}, patience: time.Second, open: 4, silentResults: 3}
	told := make(chan []result, 1)
	s.finish = func(_ context.Context, results []result) ([]string, error) {
		told <- results
		return []string{""}, nil
	}
	w := s.begin(t)
	if results := <-told; len(results) != 1 || results[0].ID != 1 {
		t.Errorf("%v", results)
	}
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
	if said := strings.Join(s.log.said(), "\n"); strings.Count(said, "no answer from the database") != 3 {
		t.Error(said)
	}
}

// A minute is not for what it does, but far less than so many pauses.
func TestAfterAWaitAWorkerFetchesAtOnce(t *testing.T) {
	for _, end := range []error{nil, stated{"57014"}} {
		s := &fake{}
		for len(s.waits) < 1000 {
			s.waits = append(s.waits, end)
		}
		w := s.begin(t)
		for begun := time.Now(); s.waitsLeft() > 0; time.Sleep(time.Millisecond) {
			if time.Since(begun) > time.Minute {
				t.Fatalf("%d waits that end with %v have not been made yet", s.waitsLeft(), end)
			}
		}
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
		if said := s.log.said(); len(said) != 2 || s.connections > 3 {
			t.Errorf("%v: %q by %d connections", end, said, s.connections)
		}
	}
}

func TestAWaitThatFailsIsLogged(t *testing.T) {
	t.Parallel()
	s := &fake{waits: []error{stated{"42501"}, stated{"57P01"}, nil}}
	w := s.begin(t)
	for s.waitsLeft() > 0 {
		time.Sleep(time.Millisecond)
	}
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
	said, want := s.log.said(), []string{`level=ERROR msg="wait refused, retrying" error=s`, `level=WARN msg="call failed, retrying" error=s`}
	if len(said) != 4 || !reflect.DeepEqual(said[1:3], want) {
		t.Errorf("%q", said)
	}
}

func TestAShortLeaseDoesNotMakeRefusedCallsRepeatAtOnce(t *testing.T) {
	w := NewWorker(sql.OpenDB(&fake{}), Options{Lease: time.Microsecond})
	begun := time.Now()
	w.cells[0].fetching.failed(context.Background(), "fetch", stated{"42501"})
	if pause := time.Since(begun); pause < 70*time.Millisecond { // of 100 ms ± 25 %
		t.Errorf("it pauses for %v", pause)
	}
}

func TestAURLThatIsRefusedEndsTheWorker(t *testing.T) {
	_, ofURL := url.Parse("postgres://u:secret@h:port/")
	for _, one := range []struct {
		err  error
		ends bool
	}{
		{stated{"42704"}, true},
		{stated{"22023"}, true},
		{stated{"57P03"}, false},
		{ofURL, true},
		{&url.Error{Op: "Get", Err: io.EOF}, false}, // of a hook before connecting
		{&pgconn.ParseConfigError{}, true},
		{errors.New(`missing "=" after "x" in connection info string`), true},
		{errors.New(`pq: wrong value for "port": out of range`), true},
		{&net.OpError{Op: "dial", Err: io.EOF}, false},
	} {
		tries := 0
		s := &fake{connect: func(context.Context) error {
			if tries++; tries == 1 {
				return one.err
			}
			return nil
		}}
		w := NewWorker(sql.OpenDB(s), Options{NoPrepare: true, Log: s.log.logger()})
		if _, err := query(context.Background(), w.cells[0].control, database.Value[string], "worker_beat"); (err != nil) != one.ends || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%v: %v", one.err, err)
		}
	}
}

// However long a call has taken by then: it fails three times before.
func TestHowLongItMayTakeToConnect(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{30 * time.Second, 3 * time.Second} {
		s := &fake{}
		w := NewWorker(sql.OpenDB(s), Options{NoPrepare: true, Lease: lease, Log: s.log.logger()})
		// That of the heartbeats has their pace and 5 seconds.
		limits := map[*link]time.Duration{w.cells[0].fetching: 30 * time.Second, w.cells[0].finishing: 30 * time.Second, w.cells[0].control: lease/3 + 5*time.Second}
		for link, limit := range limits {
			begun, tries := time.Now(), 0
			s.connect = func(ctx context.Context) error {
				end, _ := ctx.Deadline()
				if tries++; end.Before(begun.Add(limit)) || time.Until(end) > limit {
					t.Errorf("after %v it has %v, not %v", time.Since(begun), time.Until(end), limit)
				}
				if tries <= 3 {
					return io.ErrUnexpectedEOF
				}
				return nil
			}
			if _, err := query(context.Background(), link, database.Value[string], "worker_beat"); err != nil || tries != 4 {
				t.Errorf("it connects %d times: %v", tries, err)
			}
		}
	}
}

func TestAWorkerStopsWhoseWaitsGoOnInSilence(t *testing.T) {
	t.Parallel()
	s := &fake{silentWaits: true}
	w := s.begin(t)
	if err := w.Stop(); err != nil { // there is a grace period of an hour
		t.Error(err)
	}
}

func TestAStopAtOnceWaitsForAFetchUnderWay(t *testing.T) {
	t.Parallel()
	s := &fake{jobs: []string{"1"}, fetch: make(chan chan struct{})}
	told := make(chan []result, 1)
	s.finish = func(_ context.Context, results []result) ([]string, error) {
		told <- results
		return []string{""}, nil
	}
	w := s.begin(t)
	answer := <-s.fetch
	time.AfterFunc(3*time.Second, func() { close(answer) })
	if err := w.StopAndCancel(); err != nil {
		t.Error(err)
	}
	select {
	case results := <-told:
		if len(results) != 1 || results[0].ID != 1 || results[0].Do != "release" {
			t.Errorf("%v", results)
		}
	default:
		t.Error("the job that it fetches is not released")
	}
}

func TestProgressAfterTheEndOfTheWorker(t *testing.T) {
	t.Parallel()
	s := &fake{jobs: []string{"1"}, kept: map[string]int{}}
	s.finish = func(context.Context, []result) ([]string, error) { return []string{""}, nil }
	w := NewWorker(sql.OpenDB(s), Options{NoPrepare: true, Log: s.log.logger()})
	begun, ended, heard := make(chan struct{}), make(chan struct{}), make(chan error)
	HandleKind(w, "k", func(_ context.Context, job *Job[json.RawMessage]) (any, error) {
		close(begun)
		<-ended
		heard <- job.Progress(context.Background(), "late")
		return nil, nil
	})
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	<-begun
	if err := w.StopAndCancel(); err != nil {
		t.Error(err)
	}
	for len(w.cells[0].finishing.turn) == 0 { // it is closed soon
		time.Sleep(time.Millisecond)
	}
	close(ended)
	if err := <-heard; err != ErrLost {
		t.Errorf("%v", err)
	}
}

// refusing is a transaction that refuses everything, long after a timeout of a millisecond.
type refusing struct{}

func (refusing) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	time.Sleep(100 * time.Millisecond)
	return nil, stated{"55000"}
}

func TestATimeoutWaitsForACompletionAndComesWhereThatFails(t *testing.T) {
	t.Parallel()
	s := &fake{jobs: []string{"1"}, kept: map[string]int{}}
	s.finish = func(context.Context, []result) ([]string, error) { return []string{""}, nil }
	w := NewWorker(sql.OpenDB(s), Options{NoPrepare: true, Log: s.log.logger()})
	heard := make(chan error, 1)
	HandleKind(w, "k", func(ctx context.Context, job *Job[json.RawMessage]) (any, error) {
		err := job.Complete(ctx, refusing{}, nil)
		<-ctx.Done()
		heard <- context.Cause(ctx)
		return nil, err
	}, Timeout(time.Millisecond))
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case reason := <-heard:
		if reason != ErrTimeout {
			t.Errorf("%v", reason)
		}
	case <-time.After(time.Minute):
		t.Error("no timeout has reached the handler")
	}
	if err := w.StopAndCancel(); err != nil {
		t.Error(err)
	}
}

func TestAStopCutsThePauseBeforeAResultIsSentAgain(t *testing.T) {
	w := NewWorker(sql.OpenDB(&fake{}), Options{})
	ended := make(chan struct{})
	go func() {
		w.pause(context.Background(), 24*time.Hour)
		close(ended)
	}()
	w.cancel()
	<-ended
}

func TestReadyEndsWhereTheServerRefusesTheWorker(t *testing.T) {
	s := &fake{beat: func() (string, error) { return "", stated{"42501"} }}
	w := s.begin(t)
	select {
	case <-w.Done():
	default:
		t.Error("it is ready")
	}
	if err := w.Stop(); err == nil || err.Error() != "jobs: s\nHINT: Ask an administrator to run SELECT jobs.grant_worker('u')." {
		t.Errorf("%v", err)
	}
	want := []string{
		`level=ERROR msg="worker failed" worker=w error="jobs: s\nHINT: Ask an administrator to run SELECT jobs.grant_worker('u')."`,
		`level=INFO msg="worker stopped" worker=w`}
	if said := s.log.said(); !slices.Equal(said, want) {
		t.Errorf("%q", said)
	}
}

func TestABatchLingersForNoMoreJobsThanMayRun(t *testing.T) {
	t.Parallel()
	for _, limits := range [][2]int{{2, 10}, {10, 2}} {
		s := &fake{jobs: []string{"1", "2"}, kept: map[string]int{}}
		s.finish = func(_ context.Context, results []result) ([]string, error) { return make([]string, len(results)), nil }
		w := NewWorker(sql.OpenDB(s), Options{NoPrepare: true, Concurrency: limits[0], Log: s.log.logger()})
		sizes := make(chan int, 1)
		HandleKindBatch(w, "k", func(_ context.Context, jobs []*Job[json.RawMessage]) error {
			sizes <- len(jobs)
			return nil
		}, Batch(100, time.Hour), Concurrency(limits[1]))
		if err := w.Start(); err != nil {
			t.Fatal(err)
		}
		select {
		case size := <-sizes:
			if size != 2 {
				t.Errorf("%v: it has %d jobs", limits, size)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%v: it waits", limits)
		}
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestWhatAWorkerLogsOfItself(t *testing.T) {
	s := &fake{beat: func() (string, error) { return "stop", nil }}
	w := s.begin(t)
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
	want := []string{`level=INFO msg="operator command received" worker=w command=stop`, `level=INFO msg="worker stopped" worker=w`}
	if said := s.log.said(); !slices.Equal(said, want) {
		t.Errorf("%q", said)
	}
	s = &fake{}
	if err := s.begin(t).Stop(); err != nil {
		t.Error(err)
	}
	want[0] = "level=INFO msg=\"worker started\" worker=w queues=default kinds=k concurrency=2 database=d user=u host=h extension=0.1.0 library=" + Version
	if said := s.log.said(); !slices.Equal(said, want) {
		t.Errorf("%q", said)
	}
}

func TestAnOutputThatTheDatabaseRefusesFailsTheAttempt(t *testing.T) {
	tooLarge := fmt.Errorf("invalid memory alloc request size 1073741824: %w", stated{"XX000"})
	for _, refusal := range []error{stated{"22P05"}, stated{"54000"}, tooLarge} {
		s := &fake{jobs: []string{"1"}}
		told := make(chan []any, 100)
		s.finish = func(_ context.Context, results []result) (reasons []string, err error) {
			one := results[0]
			told <- []any{len(results), one.ID, one.Do, one.Details["type"]}
			if one.Do == "complete" {
				err = refusal
			}
			return []string{""}, err
		}
		w := s.begin(t)
		for _, want := range [][]any{{1, int64(1), "complete", nil}, {1, int64(1), "fail", "invalid_output"}} {
			if got := <-told; !reflect.DeepEqual(got, want) {
				t.Errorf("after %v it tells %v, not %v", refusal, got, want)
			}
		}
		if err := w.Stop(); err != nil || len(told) > 0 {
			t.Errorf("%v: %v, and %d more calls", refusal, err, len(told))
		}
	}
}

// It takes the 10 seconds that results have.
func TestAResultThatIsLostIsLogged(t *testing.T) {
	t.Parallel()
	s := &fake{jobs: []string{"1"}}
	calls := make(chan struct{}, 1000)
	s.finish = func(context.Context, []result) ([]string, error) {
		calls <- struct{}{}
		return nil, stated{"42501"}
	}
	w := s.begin(t)
	<-calls
	if err := w.Stop(); err == nil || !strings.Contains(err.Error(), "results could not be sent: 1") {
		t.Errorf("%v", err)
	}
	said := strings.Join(s.log.said(), "\n")
	for _, want := range []string{`level=WARN msg="result refused, retrying" job=1 kind=k attempt=1`,
		`level=ERROR msg="results could not be sent" worker=`, `level=ERROR msg="worker failed" worker=`} {
		if !strings.Contains(said, want) {
			t.Error(said)
		}
	}
}
