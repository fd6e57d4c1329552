package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Config is the content of a configuration file: a JSON object, every member of
// which may be missing.
//
//	{
//	  "threads": ["/srv/inbox"],
//	  "roots":   ["/srv/threads"],
//	  "lanes":   {"main": 4, "cron": 1, "subagent": 8, "slow": 2}
//	}
type Config struct {
	Threads []string           `json:"threads"`
	Roots   []string           `json:"roots"`
	Lanes   map[string]float64 `json:"lanes"` // limits, see lane.Queue.Configure
}

// ErrConfig says that a configuration file is not one.
var ErrConfig = errors.New("bad configuration")

// ReadConfig reads a configuration file. It returns ErrConfig for one with
// unknown members, with a limit below 1, with one of a session lane, or that cannot
// be read.
func ReadConfig(path string) (c Config, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, fmt.Errorf("%w: %s: %w", ErrConfig, path, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return c, fmt.Errorf("%w: %s: more than one value", ErrConfig, path)
	}
	for name, n := range c.Lanes {
		if strings.HasPrefix(strings.TrimSpace(name), "session:") {
			return c, fmt.Errorf("%w: %s: lane %q belongs to a session, its limit is 1", ErrConfig, path, name)
		}
		if n < 1 {
			return c, fmt.Errorf("%w: %s: the limit of lane %q is below 1", ErrConfig, path, name)
		}
	}
	return c, nil
}
