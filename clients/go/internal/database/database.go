// Package database makes calls through pgx and database/sql alike.
package database

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Columns scans the columns of a row.
type Columns func(into ...any) error

// Call runs a statement, and calls row for each row of the answer.
type Call func(ctx context.Context, row func(Columns) error, statement string, args ...any) error

// rows are those of either library.
type rows interface {
	Next() bool
	Scan(into ...any) error
	Err() error
}

// Of returns the calls of a connection, a transaction or a pool.
func Of(db any) (Call, error) {
	var query func(context.Context, string, []any) (rows, func(), error)
	switch db := db.(type) {
	case interface {
		Query(context.Context, string, ...any) (pgx.Rows, error)
	}:
		query = func(ctx context.Context, statement string, args []any) (rows, func(), error) {
			rows, err := db.Query(ctx, statement, args...)
			return rows, func() { rows.Close() }, err
		}
	case interface {
		QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	}:
		query = func(ctx context.Context, statement string, args []any) (rows, func(), error) {
			rows, err := db.QueryContext(ctx, statement, args...)
			return rows, func() { rows.Close() }, err
		}
	default:
		return nil, fmt.Errorf("jobs: %T is no connection, transaction or pool of pgx or database/sql", db)
	}
	return func(ctx context.Context, row func(Columns) error, statement string, args ...any) error {
		rows, done, err := query(ctx, statement, args)
		if err != nil {
			return err
		}
		defer done()
		for rows.Next() {
			if err := row(rows.Scan); err != nil {
				return err
			}
		}
		return rows.Err()
	}, nil
}

// Exec runs a statement whose rows do not matter.
func Exec(ctx context.Context, db any, statement string, args ...any) error {
	call, err := Of(db)
	if err == nil {
		err = call(ctx, func(Columns) error { return nil }, statement, args...)
	}
	return Explain(err, "")
}

// Query returns the value of scan for each row.
func Query[T any](ctx context.Context, db any, scan func(Columns) (T, error), statement string, args ...any) (answer []T, err error) {
	call, err := Of(db)
	if err == nil {
		err = call(ctx, Into(&answer, scan), statement, args...)
	}
	return answer, Explain(err, "")
}

// Into appends the value of scan for each row.
func Into[T any](answer *[]T, scan func(Columns) (T, error)) func(Columns) error {
	return func(columns Columns) error {
		value, err := scan(columns)
		*answer = append(*answer, value)
		return err
	}
}

// Value scans a row that has one column.
func Value[T any](columns Columns) (value T, err error) {
	err = columns(&value)
	return value, err
}

// JSON scans a row that has one column, of JSON.
func JSON[T any](columns Columns) (value T, err error) {
	encoded, err := Value[[]byte](columns)
	if err == nil {
		err = json.Unmarshal(encoded, &value)
	}
	return value, err
}

// User returns the role that a connection of pgx connects as, or "".
func User(db any) string {
	switch db := db.(type) {
	case *pgx.Conn:
		return db.Config().User
	case *pgxpool.Pool:
		return db.Config().ConnConfig.User
	case interface{ Conn() *pgx.Conn }: // a transaction, or a connection of a pool
		if conn := db.Conn(); conn != nil {
			return conn.Config().User
		}
	}
	return ""
}

// SQLState returns the SQLSTATE of an error of any driver that exposes it, or "".
func SQLState(err error) string {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) {
		return coded.SQLState()
	}
	return ""
}

// Explain adds the DETAIL and HINT of the server to an error's text, or this hint in its place.
func Explain(err error, hint string) error {
	if known, isKnown := err.(Explained); isKnown {
		err = known.error
	}
	if hint == "" && SQLState(err) == "" {
		return err
	}
	return Explained{err, hint}
}

// Explained is an error whose text has DETAIL and HINT.
type Explained struct {
	error
	hint string
}

func (e Explained) Unwrap() error { return e.error }

func (e Explained) Error() string {
	message, hint := e.error.Error(), e.hint
	var coded interface{ SQLState() string }
	if errors.As(e.error, &coded) {
		// The drivers' own types have fields of these names. lib/pq has no method for them.
		fields := reflect.Indirect(reflect.ValueOf(coded))
		text := func(name string) (text string) {
			if fields.Kind() == reflect.Struct && fields.FieldByName(name).Kind() == reflect.String {
				text = fields.FieldByName(name).String()
			}
			return text
		}
		if detail := text("Detail"); detail != "" {
			message += "\nDETAIL: " + detail
		}
		hint = cmp.Or(hint, text("Hint"))
	}
	if hint != "" {
		message += "\nHINT: " + hint
	}
	return message
}
