package database

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strings"
)

// ErrNoTLS means that the client insists on TLS.
var ErrNoTLS = errors.New("the server has no TLS")

// HintExtension is for a database without the extension.
const HintExtension = "Check the database, or run CREATE EXTENSION jobs in it."

// Hint returns how to mend an error that repeating the call does not mend, or "".
func Hint(err error, grant, role string) string {
	var unknown *net.DNSError
	switch state, text := SQLState(err), fmt.Sprint(err); {
	case state == "3D000":
		return "Check the database in the URL."
	case state == "28000", state == "28P01":
		return "Check the user and the password in the URL."
	case state == "3F000", state == "42P01" && strings.Contains(text, "jobs."):
		return HintExtension
	case state == "42883":
		return "Run ALTER EXTENSION jobs UPDATE, after installing the version that the library needs on the server."
	case state == "42501":
		role = strings.ReplaceAll(cmp.Or(role, "ROLE"), "'", "''")
		return fmt.Sprintf("Ask an administrator to run SELECT jobs.%s('%s').", grant, role)
	case errors.As(err, &unknown) && unknown.IsNotFound:
		return "Check the host in the URL."
	case errors.Is(err, ErrNoTLS), state == "" && strings.Contains(text, "SSL is not enabled on the server"):
		return "Add ?sslmode=disable to the URL."
	}
	return ""
}

// Advise adds a hint to an error of a call. The function grant gives a role the right to the call.
func Advise(err error, grant string, db any) error {
	return Explain(err, Hint(err, grant, User(db)))
}
