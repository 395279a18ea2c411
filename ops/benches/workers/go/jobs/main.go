// Our library in Go, with pgx.
package main

import (
	"context"
	"os"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.org/jobs"
	"jobs-bench/bench"
)

func main() {
	ctx := context.Background()
	db, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	unique := func(isUnique bool) jobs.InsertOpts {
		if !isUnique {
			return jobs.InsertOpts{Queue: "bench"}
		}
		return jobs.InsertOpts{Queue: "bench", Unique: &jobs.Unique{ByArgs: true}}
	}
	bench.Program{
		Insert: func(args bench.Args, isUnique bool) error {
			_, err := jobs.Insert(ctx, db, args, unique(isUnique))
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
		Work: func(concurrency int, handle bench.Handler) error {
			prefetch, _ := strconv.Atoi(os.Getenv("PREFETCH"))
			worker := jobs.NewWorker(db, jobs.Options{Queues: []string{"bench"}, Concurrency: concurrency, Prefetch: prefetch})
			jobs.Handle(worker, func(ctx context.Context, job *jobs.Job[bench.Args]) (any, error) {
				return nil, handle(ctx, job.Args)
			})
			return worker.Run(ctx)
		},
	}.Main()
}
