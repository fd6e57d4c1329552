module thread/bridge

go 1.26.0

require (
	github.com/goccy/go-yaml v1.19.2
	pgregory.net/rapid v1.3.0
	thread v0.0.0
)

require (
	github.com/alecthomas/kong v1.17.0 // indirect
	github.com/expr-lang/expr v1.17.8 // indirect
	github.com/fsnotify/fsnotify v1.10.1 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
	go.etcd.io/bbolt v1.5.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	gopkg.in/natefinch/lumberjack.v2 v2.2.1 // indirect
)

replace thread => ../
