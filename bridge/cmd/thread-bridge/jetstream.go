//go:build jetstream || !bare

package main

import _ "thread/bridge/jetstream"
