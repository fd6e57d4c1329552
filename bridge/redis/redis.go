// Package redis is the adapter for it: not built yet.
package redis
