//go:build redis || !bare

package main

import _ "thread/bridge/redis"
