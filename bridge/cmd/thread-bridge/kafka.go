//go:build kafka || !(edge || bare)

package main

import _ "thread/bridge/kafka"
