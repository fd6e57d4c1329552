// Package mqtt is the adapter for it: not built yet.
package mqtt
