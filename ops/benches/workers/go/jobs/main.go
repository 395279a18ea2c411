// Our library in Go, with lib/pq.
package main

import (
	"context"
	"database/sql"
	"os"

	jobs "postgres_jobs"

	_ "github.com/lib/pq"

	"jobs-bench/bench"
)

func main() {
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	unique := func(isUnique bool) jobs.InsertOpts {
		if !isUnique {
			return jobs.InsertOpts{Queue: "bench"}
		}
		return jobs.InsertOpts{Queue: "bench", Unique: &jobs.Unique{ByArgs: true}}
	}
	ctx := context.Background()
	bench.Program{
		Insert: func(user int, isUnique bool) error {
			_, err := jobs.Insert(ctx, db, bench.Welcome(user), unique(isUnique))
			return err
		},
		InsertMany: func(user int, isUnique bool) error {
			many := make([]jobs.NewJob, bench.Batch)
			for i := range many {
				many[i] = jobs.NewJob{Args: bench.Welcome(user + i), InsertOpts: unique(isUnique)}
			}
			_, err := jobs.InsertMany(ctx, db, many)
			return err
		},
		Work: func(concurrency int, handle func(context.Context) error) error {
			worker := jobs.NewWorker(db, jobs.Options{Queues: []string{"bench"}, Concurrency: concurrency})
			jobs.Handle(worker, func(ctx context.Context, _ *jobs.Job[bench.Args]) (any, error) {
				return nil, handle(ctx)
			})
			return worker.Run(context.Background())
		},
	}.Main()
}
