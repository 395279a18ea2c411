// Faktory, by its own client and worker. Its server is started by run.py.
package main

import (
	"context"
	"log"
	"os"

	faktory "github.com/contribsys/faktory/client"
	worker "github.com/contribsys/faktory_worker_go"

	"jobs-bench/bench"
)

func main() {
	client, err := faktory.Open()
	if err != nil {
		panic(err)
	}
	push := func(args bench.Args, _ bool) error { return client.Push(faktory.NewJob("bench", args)) }
	many := func(user int, _ bool) error { return bulk(client, user, bench.Batch) }
	bench.Program{
		Setup: client.Flush,
		Fill: func(jobs int) error {
			for ; jobs > 0; jobs -= bench.Batch {
				if err := bulk(client, 1, min(jobs, bench.Batch)); err != nil {
					return err
				}
			}
			return nil
		},
		Insert:     push,
		InsertMany: many,
		Work: func(concurrency int, handle bench.Handler) error {
			manager := worker.NewManager()
			manager.Concurrency = concurrency
			manager.Logger = &worker.StdLogger{Logger: log.New(os.Stderr, "", 0)}
			manager.ProcessStrictPriorityQueues("default")
			manager.Register("bench", func(ctx context.Context, _ ...any) error { return handle(ctx, bench.Args{}) })
			return manager.Run()
		},
	}.Main()
}

func bulk(client *faktory.Client, user, count int) error {
	jobs := make([]*faktory.Job, count)
	for i := range jobs {
		jobs[i] = faktory.NewJob("bench", bench.Welcome(user+i))
	}
	_, err := client.PushBulk(jobs)
	return err
}
