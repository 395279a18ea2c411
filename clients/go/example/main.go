// A web application that inserts a job in the transaction of its own rows, and works the jobs in
// the same program.
//
//	psql -c 'CREATE EXTENSION jobs; CREATE TABLE users (id bigserial PRIMARY KEY, email text UNIQUE)'
//	DATABASE_URL=postgres://.. go run .
//	curl -d email=a@example.com localhost:8080/users
package main

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/lib/pq"

	jobs "postgres_jobs"
)

// WelcomeArgs are the args of jobs of kind email.welcome.
type WelcomeArgs struct {
	UserID int64 `json:"user_id"`
}

// Kind is the kind.
func (WelcomeArgs) Kind() string { return "email.welcome" }

type application struct{ db *sql.DB }

// createUser writes the user and the job that welcomes them: both are there, or neither is.
func (app application) createUser(ctx context.Context, email string) (id int64, err error) {
	tx, err := app.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	const insert = "INSERT INTO users (email) VALUES ($1) RETURNING id"
	if err := tx.QueryRowContext(ctx, insert, email).Scan(&id); err != nil {
		return 0, err
	}
	if _, err := jobs.Insert(ctx, tx, WelcomeArgs{UserID: id}); err != nil {
		return 0, err
	}
	return id, tx.Commit()
}

// welcome is the handler of the job.
func (app application) welcome(ctx context.Context, job *jobs.Job[WelcomeArgs]) (any, error) {
	var email string
	err := app.db.QueryRowContext(ctx, "SELECT email FROM users WHERE id = $1", job.Args.UserID).Scan(&email)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, jobs.Cancel("the user is gone")
	}
	if err != nil {
		return nil, err
	}
	log.Printf("welcome, %s", email)
	return map[string]string{"sent_to": email}, nil
}

func (app application) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	if _, err := app.createUser(request.Context(), request.FormValue("email")); err != nil {
		http.Error(response, err.Error(), http.StatusInternalServerError)
		return
	}
	response.WriteHeader(http.StatusCreated)
}

func main() {
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	app := application{db}
	worker := jobs.NewWorker(db, jobs.Options{})
	jobs.Handle(worker, app.welcome, jobs.Timeout(30*time.Second))
	if err := worker.Start(); err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/users", app)
	server := &http.Server{Addr: "localhost:8080", Handler: mux}
	go func() {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
		defer stop()
		<-ctx.Done()
		server.Shutdown(context.Background())
	}()
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		log.Print(err)
	}
	if err := worker.Stop(); err != nil {
		log.Fatal(err)
	}
}
