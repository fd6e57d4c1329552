// Package sqs is the adapter for it: not built yet.
package sqs
