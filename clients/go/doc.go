// Package jobs works and inserts jobs of the Postgres extension jobs, a job queue, by database/sql
// with any driver.
//
//	type EmailArgs struct{ To string }
//
//	func (EmailArgs) Kind() string { return "email.send" }
//
//	worker := jobs.NewWorker(db, jobs.Options{Queues: []string{"mail"}})
//	jobs.Handle(worker, func(ctx context.Context, job *jobs.Job[EmailArgs]) (any, error) {
//		return nil, send(ctx, job.Args.To)
//	})
//	err := worker.Run(ctx) // until SIGTERM
//
//	inserted, err := jobs.Insert(ctx, tx, EmailArgs{To: "a@example.com"})
package jobs
