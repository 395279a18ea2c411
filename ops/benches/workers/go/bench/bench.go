// Package bench is what the programs in Go have in common: the shape that run.py describes.
package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

// Args are those of every job. No two of a run have the same user.
type Args struct {
	UserID   int     `json:"user_id"`
	Template string  `json:"template"`
	Tenant   *Tenant `json:"tenant,omitempty"`
}

// Kind is the kind of every job.
func (Args) Kind() string { return "bench" }

// Welcome returns the args of a user.
func Welcome(user int) Args { return Args{UserID: user, Template: "welcome"} }

// Batch is how many jobs are inserted at once.
const Batch = 1000

// Program is what a library does. A program that only works has Work alone.
type Program struct {
	Setup func() error
	// Fill inserts so many jobs.
	Fill func(jobs int) error
	// Insert inserts a job in a transaction of its own; as unique by its args if it is to be unique.
	Insert func(args Args, unique bool) error
	// InsertMany inserts Batch jobs, of which this is the first user.
	InsertMany func(user int, unique bool) error
	// Work runs a worker until the process is killed.
	Work func(concurrency int, handle Handler) error
}

// Handler handles a job.
type Handler func(ctx context.Context, args Args) error

// Main runs the command of the program's arguments.
func (p Program) Main() {
	if err := p.run(os.Args[1], numbers(os.Args[2:])); err != nil {
		panic(err)
	}
}

func (p Program) run(command string, values []int) error {
	switch command {
	case "setup":
		return p.Setup()
	case "fill":
		return p.Fill(values[0])
	case "send":
		return p.send()
	case "single", "unique", "duplicates":
		return p.insert(command, values[0])
	case "many", "many_unique":
		return p.insertMany(command == "many_unique", values[0])
	case "listen":
		return p.Work(values[0], listening)
	case "cancel":
		return p.Work(values[0], cancelling)
	case "work":
		return p.Work(values[0], working(time.Duration(values[1])*time.Millisecond, int64(values[2])))
	case "tenants":
		return p.serveTenants(values[0], values[1], values[2], time.Duration(values[3])*time.Second)
	}
	return fmt.Errorf("no command %s", command)
}

func numbers(texts []string) (values []int) {
	for _, text := range texts {
		value, err := strconv.Atoi(text)
		if err != nil {
			panic(err)
		}
		values = append(values, value)
	}
	return values
}

func now() float64 { return float64(time.Now().UnixNano()) / 1e9 }

func say(values map[string]float64) {
	line, _ := json.Marshal(values)
	fmt.Println(string(line))
}

// Users of unique jobs that no earlier run has had.
func fresh() int { return int(time.Now().UnixNano() / 1000 % 1e15) }

func (p Program) insert(how string, jobs int) error {
	user := fresh()
	first := now()
	for range jobs {
		if how != "duplicates" {
			user++
		}
		if err := p.Insert(Welcome(user), how != "single"); err != nil {
			return err
		}
	}
	say(map[string]float64{"first": first, "last": now()})
	return nil
}

func (p Program) insertMany(unique bool, jobs int) error {
	user := fresh()
	first := now()
	for range (jobs + Batch - 1) / Batch {
		if err := p.InsertMany(user, unique); err != nil {
			return err
		}
		user += Batch
	}
	say(map[string]float64{"first": first, "last": now()})
	return nil
}

// send inserts a job for each line of stdin, and says when it was committed.
func (p Program) send() error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if err := p.Insert(Welcome(1), false); err != nil {
			return err
		}
		say(map[string]float64{"committed": now()})
	}
	return lines.Err()
}

// working handles so many jobs, and says when the first one began and the last one ended.
func working(sleep time.Duration, left int64) Handler {
	var first float64
	var begun atomic.Bool
	return func(context.Context, Args) error {
		if !begun.Swap(true) {
			first = now()
		}
		if sleep > 0 {
			time.Sleep(sleep)
		}
		if atomic.AddInt64(&left, -1) == 0 {
			say(map[string]float64{"first": first, "last": now()})
		}
		return nil
	}
}

// listening says when a handler starts.
func listening(context.Context, Args) error {
	say(map[string]float64{"started": now()})
	return nil
}

// cancelling says when a handler starts, and when it is cancelled.
func cancelling(ctx context.Context, _ Args) error {
	say(map[string]float64{"started": now()})
	<-ctx.Done()
	say(map[string]float64{"cancelled": now()})
	return ctx.Err()
}
