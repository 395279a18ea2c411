package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"example.org/jobs"
)

type Email struct{ To string }

func (Email) Kind() string { return "email.send" }

func main() {
	worker := jobs.OpenWorker(os.Getenv("DATABASE_URL"), jobs.Options{Queues: []string{"mail"}})
	jobs.Handle(worker, func(ctx context.Context, job *jobs.Job[Email]) (any, error) {
		fmt.Println("mail to", job.Args.To)
		return map[string]bool{"sent": true}, nil
	}, jobs.Timeout(30*time.Second))
	worker.Main()
}
