package serve

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestReadConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	for _, tt := range []struct {
		text string
		want *Config // nil: refused
	}{
		{`{}`, &Config{}},
		{`{"threads":["/a"],"roots":["/b","/c"],"lanes":{"main":6,"slow":1.5}}`,
			&Config{Threads: []string{"/a"}, Roots: []string{"/b", "/c"}, Lanes: map[string]float64{"main": 6, "slow": 1.5}}},
		{`{"cron":{"maxConcurrentRuns":2.5},"agents":{"defaults":{"maxConcurrent":0,"subagents":{"maxConcurrent":3}}},"lanes":{"slow":2}}`, // L-24
			&Config{Lanes: map[string]float64{"cron": 2.5, "main": 1, "subagent": 3, "slow": 2}}},
		{`{"cron":{},"agents":{}}`, &Config{}},
		{`{"cron":{"maxConcurrentRuns":2},"lanes":{" cron ":2}}`, nil},
		{`{"cron":{"maxConcurrentRuns":"2"}}`, nil},
		{`{"cron":{"maxconcurrent":2}}`, nil},
		{``, nil},
		{`[]`, nil},
		{`{} {}`, nil},
		{`{"lane":{}}`, nil},
		{`{"lanes":{"main":"4"}}`, nil},
		{`{"lanes":{"main":0}}`, nil},
		{`{"lanes":{"session:a":2}}`, nil},
		{`{"lanes":{" session:a":2}}`, nil},
	} {
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadConfig(path)
		if tt.want == nil && !errors.Is(err, ErrConfig) || tt.want != nil && (err != nil || !reflect.DeepEqual(got, *tt.want)) {
			t.Errorf("%s: %+v %v", tt.text, got, err)
		}
	}
	if _, err := ReadConfig(path + ".not"); !errors.Is(err, ErrConfig) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}
