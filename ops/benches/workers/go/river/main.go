// River, by its client, with pgx. It fetches every millisecond while there are jobs, the shortest
// pause that it allows, and listens while there are none. Who inserts notifies as often.
package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"jobs-bench/bench"
)

var ctx = context.Background()

type worker struct {
	river.WorkerDefaults[bench.Args]
	handle bench.Handler
}

func (w *worker) Work(ctx context.Context, job *river.Job[bench.Args]) error {
	return w.handle(ctx, job.Args)
}

func main() {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	client := open(pool, &river.Config{FetchCooldown: time.Millisecond})
	unique := func(unique bool) *river.InsertOpts {
		return &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: unique}}
	}
	many := func(user, count int, opts *river.InsertOpts) []river.InsertManyParams {
		jobs := make([]river.InsertManyParams, count)
		for i := range jobs {
			jobs[i] = river.InsertManyParams{Args: bench.Welcome(user + i), InsertOpts: opts}
		}
		return jobs
	}
	bench.Program{
		Setup: func() error {
			migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: quiet})
			if err != nil {
				return err
			}
			_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
			return err
		},
		Fill: func(jobs int) error {
			for ; jobs > 0; jobs -= 10_000 {
				if _, err := client.InsertManyFast(ctx, many(1, min(jobs, 10_000), nil)); err != nil {
					return err
				}
			}
			return nil
		},
		Insert: func(args bench.Args, isUnique bool) error {
			_, err := client.Insert(ctx, args, unique(isUnique))
			return err
		},
		InsertMany: func(user int, isUnique bool) error {
			jobs := many(user, bench.Batch, unique(isUnique))
			if isUnique {
				_, err := client.InsertMany(ctx, jobs)
				return err
			}
			_, err := client.InsertManyFast(ctx, jobs) // by COPY
			return err
		},
		Work: func(concurrency int, handle bench.Handler) error {
			workers := river.NewWorkers()
			river.AddWorker(workers, &worker{handle: handle})
			client := open(pool, &river.Config{
				Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: concurrency}},
				Workers:       workers,
				FetchCooldown: time.Millisecond,
			})
			if err := client.Start(ctx); err != nil {
				return err
			}
			select {}
		},
	}.Main()
}

var quiet = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))

func open(pool *pgxpool.Pool, config *river.Config) *river.Client[pgx.Tx] {
	config.Logger = quiet
	client, err := river.NewClient(riverpgxv5.New(pool), config)
	if err != nil {
		panic(err)
	}
	return client
}
