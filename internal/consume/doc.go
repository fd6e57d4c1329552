// Package consume is the loop that every handler needs: it takes a consumer's
// events, hands them to a command, and does with them what the command's exit
// code says. docs/reference/consume.md is for users. The package is internal to this
// program and makes no promise to library users.
//
//	exit code of the command     its events
//	0                            are acked
//	75 (EX_TEMPFAIL)             are tried again later; nothing is counted
//	65 (EX_DATAERR)              a single one becomes a dead letter, a group is split
//	another, or a signal         counts an attempt of a single one, a group is split
//
// What is counted and kept, and in which order events come, is the engine's
// business (engine.Feed). The command is run directly, not by a shell, and one at
// a time. It inherits stdout and stderr.
//
// # Termination
//
// After SIGINT or SIGTERM the running command may finish, its result is stored,
// and nothing new is begun. A second signal is passed on to the command as
// SIGTERM. A command that dies of the terminal's SIGINT, as its user wished, is
// not counted. After SIGKILL the next run finds the delivery begun without a
// result, and takes it as failed.
package consume
