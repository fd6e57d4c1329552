// Package pgerror tells errors of PostgreSQL apart.
package pgerror

import (
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
)

// Code is the code of an error of the server, "" for any other.
func Code(err error) string {
	if p := (*pgconn.PgError)(nil); errors.As(err, &p) {
		return p.Code
	}
	return ""
}

// Message is what an error of the server says, without what is around it.
func Message(err error) string {
	if p := (*pgconn.PgError)(nil); errors.As(err, &p) {
		return p.Message
	}
	return err.Error()
}

// Passes reports whether an error of the server with this code goes by itself.
func Passes(code string) bool {
	return code != "" && (slices.Contains(transient, code) || slices.Contains(transient, code[:2]))
}

// transient are codes and classes of what passes: locks, deadlocks, timeouts, too many
// connections, a full disk, a server that stops or starts.
var transient = []string{"55P03", "40", "57014", "53", "57P01", "57P02", "57P03", "25P03", "08"}
