// A web application that inserts a job in the transaction of its own rows, and works the jobs in
// the same program.
//
//	psql -c 'CREATE EXTENSION jobs; CREATE TABLE users (id bigserial PRIMARY KEY, email text UNIQUE)'
//	DATABASE_URL=postgres://.. go run .
//	curl -d email=a@example.com localhost:8080/users
package main

import (
	"context"
	"errors"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.org/jobs"
)

// WelcomeArgs are the args of jobs of kind email.welcome.
type WelcomeArgs struct {
	UserID int64 `json:"user_id"`
}

// Kind is the kind.
func (WelcomeArgs) Kind() string { return "email.welcome" }

// InsertOpts are the defaults of the kind.
func (WelcomeArgs) InsertOpts() jobs.InsertOpts {
	return jobs.InsertOpts{MaxAttempts: 10, Timeout: 30 * time.Second}
}

type application struct{ db *pgxpool.Pool }

// createUser writes the user and the job that welcomes them: both are there, or neither is.
func (app application) createUser(ctx context.Context, email string) (id int64, err error) {
	err = pgx.BeginFunc(ctx, app.db, func(tx pgx.Tx) error {
		const insert = "INSERT INTO users (email) VALUES ($1) RETURNING id"
		if err := tx.QueryRow(ctx, insert, email).Scan(&id); err != nil {
			return err
		}
		_, err := jobs.Insert(ctx, tx, WelcomeArgs{UserID: id})
		return err
	})
	return id, err
}

// welcome is the handler of the job.
func (app application) welcome(ctx context.Context, job *jobs.Job[WelcomeArgs]) (any, error) {
	var email string
	err := app.db.QueryRow(ctx, "SELECT email FROM users WHERE id = $1", job.Args.UserID).Scan(&email)
	if errors.Is(err, pgx.ErrNoRows) {
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
	db, err := pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	app := application{db}
	worker := jobs.NewWorker(db, jobs.Options{})
	jobs.Handle(worker, app.welcome)
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
