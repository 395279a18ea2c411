package jobs

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// idle is a driver whose database has no jobs.
type idle struct{}

func (idle) Open(string) (driver.Conn, error) {
	return connect(&fake{kept: map[string]int{}}), nil
}

// TestMain runs a worker as the whole program, where a test has started the program for that.
func TestMain(m *testing.M) {
	driverName := os.Getenv("JOBS_TEST_DRIVER")
	if driverName == "" {
		os.Exit(m.Run())
	}
	sql.Register("idle", idle{})
	concurrency, _ := strconv.Atoi(os.Getenv("JOBS_TEST_CONCURRENCY"))
	options := Options{NoPrepare: true, Concurrency: concurrency}
	w := OpenWorker("postgres://%", options)
	if driverName == "idle" {
		db, _ := sql.Open(driverName, "")
		w = NewWorker(db, options)
	}
	HandleKind(w, "k", func(context.Context, *Job[json.RawMessage]) (any, error) { return nil, nil })
	go func() {
		<-w.Ready()
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
	}()
	w.Main()
	println("returned")
}

func TestAWorkerThatIsAProgram(t *testing.T) {
	for _, one := range []struct {
		driver, concurrency string
		status              int
		says                []string
	}{
		{"idle", "1", 0, []string{"INFO worker started", "INFO worker stopped", "returned"}},
		{"idle", "-1", 1, []string{"ERROR worker failed", "Concurrency must be between 1 and 2147483647, not -1"}},
		{"none", "1", 1, []string{"ERROR worker failed", "failed to parse as URL"}},
	} {
		program := exec.Command(os.Args[0])
		program.Env = append(os.Environ(), "JOBS_TEST_DRIVER="+one.driver, "JOBS_TEST_CONCURRENCY="+one.concurrency)
		said, err := program.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if status := program.ProcessState.ExitCode(); status != one.status {
			t.Errorf("%s, %s: it ends with status %d", one.driver, one.concurrency, status)
		}
		for _, text := range one.says {
			if !strings.Contains(string(said), text) {
				t.Errorf("%s, %s: it does not say %q: %s", one.driver, one.concurrency, text, said)
			}
		}
	}
}
