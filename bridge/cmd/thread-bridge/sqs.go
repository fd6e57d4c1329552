//go:build sqs || !(edge || bare)

package main

import _ "thread/bridge/sqs"
