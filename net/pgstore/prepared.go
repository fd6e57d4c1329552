package pgstore

import (
	"crypto/sha256"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// prepared are the statements that the server keeps parsed for a connection, and mostly planned,
// by their texts. Parsing and planning them was more than half of what a transaction took.
//
// Behind a pooler of transactions the session may be another one's next time. So a connection has
// them only while the process of the server is the one that it was made with: a pooler tells
// clients other numbers. For one that does not, the names tell the texts, and what fails
// because of a name is done again without names: see begin.
type prepared map[string]*pgconn.StatementDescription

const preparedKey = "thread: prepared"

// nameOf is a name on the server for what a text of any length says: a statement, or a channel.
func nameOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("thread_%x", sum[:8])
}

// preparedOn returns the statements of a connection, nil where it must not have any.
func preparedOn(c *pgconn.PgConn) prepared {
	p, _ := c.CustomData()[preparedKey].(prepared)
	return p
}

// noPrepared are the codes of a name that the server does not know, or knows already.
var noPrepared = []string{"26000", "42P05"}
