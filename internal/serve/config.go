package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"thread/lane"
)

// Config is the content of a configuration file: a JSON object, every member of
// which may be missing.
//
//	{
//	  "threads": ["/srv/inbox"],
//	  "roots":   ["/srv/threads"],
//	  "lanes":   {"main": 4, "cron": 1, "subagent": 8, "slow": 2},
//	  "work":    {"command": "./agent.sh", "parallel": 2, "timeout": "10m", "strategy": "requeue_all", "max_attempts": 1}
//	}
//
// The limits of the three named lanes may also have the names that the original has
// for them, where they are at least 1 whatever the number (L-05):
//
//	{
//	  "cron":   {"maxConcurrentRuns": 1},
//	  "agents": {"defaults": {"maxConcurrent": 4, "subagents": {"maxConcurrent": 8}}}
//	}
type Config struct {
	Threads []string           `json:"threads"`
	Roots   []string           `json:"roots"`
	Lanes   map[string]float64 `json:"lanes"` // limits, see lane.Queue.Configure
	Work    Work               `json:"work"`
}

// fileConfig is a Config with the original's names for some of it.
type fileConfig struct {
	Config
	Cron struct {
		MaxConcurrentRuns *float64 `json:"maxConcurrentRuns"`
	} `json:"cron"`
	Agents struct {
		Defaults struct {
			MaxConcurrent *float64 `json:"maxConcurrent"`
			Subagents     struct {
				MaxConcurrent *float64 `json:"maxConcurrent"`
			} `json:"subagents"`
		} `json:"defaults"`
	} `json:"agents"`
}

// config returns the limits under the names of lanes. It returns ErrConfig where one is
// given twice.
func (f *fileConfig) config() (c Config, err error) {
	c = f.Config
	for _, known := range []struct {
		name, lane string
		limit      *float64
	}{
		{"cron.maxConcurrentRuns", lane.Cron, f.Cron.MaxConcurrentRuns},
		{"agents.defaults.maxConcurrent", lane.Main, f.Agents.Defaults.MaxConcurrent},
		{"agents.defaults.subagents.maxConcurrent", lane.Subagent, f.Agents.Defaults.Subagents.MaxConcurrent},
	} {
		if known.limit == nil {
			continue
		}
		for name := range c.Lanes {
			if lane.GlobalLane(name) == known.lane {
				return c, fmt.Errorf("%w: %s and the limit of lane %q in lanes are the same", ErrConfig, known.name, name)
			}
		}
		if c.Lanes == nil {
			c.Lanes = map[string]float64{}
		}
		c.Lanes[known.lane] = max(1, *known.limit)
	}
	return c, nil
}

// ErrConfig says that a configuration file is not one.
var ErrConfig = errors.New("bad configuration")

// ReadConfig reads a configuration file. It returns ErrConfig for one with
// unknown members, with a limit below 1, with one of a session lane, with work that
// cannot be, or that cannot be read.
func ReadConfig(path string) (c Config, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var file fileConfig
	if err := d.Decode(&file); err != nil {
		return c, fmt.Errorf("%w: %s: %w", ErrConfig, path, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return c, fmt.Errorf("%w: %s: more than one value", ErrConfig, path)
	}
	if err := file.Work.check(); err != nil {
		return c, fmt.Errorf("%w: %s: work: %w", ErrConfig, path, err)
	}
	for name, n := range file.Lanes {
		if strings.HasPrefix(strings.TrimSpace(name), "session:") {
			return c, fmt.Errorf("%w: %s: lane %q belongs to a session, its limit is 1", ErrConfig, path, name)
		}
		if n < 1 {
			return c, fmt.Errorf("%w: %s: the limit of lane %q is below 1", ErrConfig, path, name)
		}
	}
	if c, err = file.config(); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}
