// Package survive holds the tests that break things: they kill the real program
// at every system call, make every system call fail, and damage every kind of page.
// They replay what a loss of power can leave on a disk, and let many processes work
// on one directory while some of them are killed. What each of them proves, and
// how many cases it tries, is in docs/reference/reliability.md.
//
// The tests run the program built from this tree and look at the result through
// package engine. A quick selection of the cases runs with the ordinary tests;
// THREAD_CRASH=sample runs every operation at some of its points, and
// THREAD_CRASH=full runs them all.
package survive
