// Our library in Go, with lib/pq.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	jobs "postgres_jobs"

	_ "github.com/lib/pq"
)

type args struct {
	UserID   int    `json:"user_id"`
	Template string `json:"template"`
}

func (args) Kind() string { return "bench" }

func main() {
	var values []int
	for _, arg := range os.Args[2:] {
		value, _ := strconv.Atoi(arg)
		values = append(values, value)
	}
	handle := map[string]func(context.Context){"listen": listening, "cancel": cancelling}[os.Args[1]]
	if os.Args[1] == "work" {
		handle = working(time.Duration(values[1])*time.Millisecond, int64(values[2]))
	}
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	worker := jobs.NewWorker(db, jobs.Options{Queues: []string{"bench"}, Concurrency: values[0]})
	jobs.Handle(worker, func(ctx context.Context, _ *jobs.Job[args]) (any, error) {
		handle(ctx)
		return nil, ctx.Err()
	})
	panic(worker.Run(context.Background()))
}

func now() float64 { return float64(time.Now().UnixNano()) / 1e9 }

func say(values map[string]float64) {
	line, _ := json.Marshal(values)
	fmt.Println(string(line))
}

// working handles so many jobs, and says when the first one began and the last one ended.
func working(sleep time.Duration, left int64) func(context.Context) {
	var first float64
	var begun atomic.Bool
	return func(context.Context) {
		if !begun.Swap(true) {
			first = now()
		}
		if sleep > 0 {
			time.Sleep(sleep)
		}
		if atomic.AddInt64(&left, -1) == 0 {
			say(map[string]float64{"first": first, "last": now()})
		}
	}
}

// listening says when a handler starts.
func listening(context.Context) { say(map[string]float64{"started": now()}) }

// cancelling says when a handler starts, and when it is cancelled.
func cancelling(ctx context.Context) {
	listening(ctx)
	<-ctx.Done()
	say(map[string]float64{"cancelled": now()})
}
