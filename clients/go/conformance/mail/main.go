package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"time"

	_ "github.com/lib/pq"
	jobs "postgres_jobs"
)

type Email struct{ To string }

func (Email) Kind() string { return "email.send" }

func send(ctx context.Context, job *jobs.Job[Email]) (any, error) {
	fmt.Println("mail to", job.Args.To)
	return map[string]bool{"sent": true}, nil
}

func main() {
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	worker := jobs.NewWorker(db, jobs.Options{Queues: []string{"mail"}})
	jobs.Handle(worker, send, jobs.Timeout(30*time.Second))
	if err := worker.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
