//go:build mqtt || !bare

package main

import _ "thread/bridge/mqtt"
