// Package rabbitmq is the adapter for it: not built yet.
package rabbitmq
