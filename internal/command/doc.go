// Package command runs commands. Every process that works for an event, a message or a
// run is started here, so that all of them end in the same way.
//
// # What is left of a command
//
// A process that supervises commands holds two kernel locks. The supervisor lock is its
// own. The tree lock is inherited by the command and by what the command starts. When the
// supervisor lock is free and the tree lock is held, the supervisor was killed and its
// command was not. The process that finds this ends the rest of the command (Left.End)
// before it starts anything in its place. A process that only asks takes a lock shared, and
// is not taken for a part of the command. A supervisor that ends in order unlocks the tree
// lock, so a daemon that its command has left behind holds nothing.
//
// The package is internal to this program and makes no promise to library users.
package command
