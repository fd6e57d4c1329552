// Package kafka is the adapter for it: not built yet.
package kafka
