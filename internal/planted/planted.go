// Package planted puts known bugs into the program, to see that the tests notice
// them. It does so only in a build with the tag planted; in every other Bug is a
// constant and leaves no trace. See survive/planted_test.go.
package planted
