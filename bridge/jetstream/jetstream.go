// Package jetstream is the adapter for it: not built yet.
package jetstream
