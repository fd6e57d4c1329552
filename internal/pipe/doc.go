// Package pipe reads what a process prints into a pipe. It makes no promise to
// library users.
package pipe
