//go:build rabbitmq || !(edge || bare)

package main

import _ "thread/bridge/rabbitmq"
