package jobs

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// there is a driver whose database has no jobs.
type there struct{}

func (there) Open(string) (driver.Conn, error) {
	return connection{&server{kept: map[string]int{}}}, nil
}

// TestMain runs a worker as the whole program, where a test has started the program for that.
func TestMain(m *testing.M) {
	name := os.Getenv("JOBS_TEST_DRIVER")
	if name == "" {
		os.Exit(m.Run())
	}
	sql.Register("there", there{})
	options := Options{NoPrepare: true}
	if name == "refused" {
		name, options.Concurrency = "there", -1
	}
	w := OpenWorker(name, "", options)
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
		driver string
		status int
		says   []string
	}{
		{"there", 0, []string{"INFO jobs: the worker starts", "INFO jobs: the worker has ended", "returned"}},
		{"refused", 1, []string{"ERROR jobs: the worker has failed", "Concurrency is -1"}},
		{"missing", 1, []string{"ERROR jobs: the worker has failed", `unknown driver "missing"`}},
	} {
		program := exec.Command(os.Args[0])
		program.Env = append(os.Environ(), "JOBS_TEST_DRIVER="+one.driver)
		said, err := program.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if status := program.ProcessState.ExitCode(); status != one.status {
			t.Errorf("%s: it ends with status %d", one.driver, status)
		}
		for _, text := range one.says {
			if !strings.Contains(string(said), text) {
				t.Errorf("%s: it does not say %q: %s", one.driver, text, said)
			}
		}
	}
}
