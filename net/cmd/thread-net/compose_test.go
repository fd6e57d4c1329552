//go:build !windows

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// TestCompose checks examples/fleet/compose.yaml as far as that goes without docker: that it
// is YAML of services whose volumes, secrets and configs there are, that its scripts are
// shell, that every command of thread-net in it parses, with the URL as it is, and that
// PostgreSQL has the others.
func TestCompose(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "examples", "fleet")
	data, err := os.ReadFile(filepath.Join(dir, "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Image       string
			Build       struct{ Context, Dockerfile string }
			Environment map[string]string
			Secrets     []string
			Volumes     []string
			Configs     []struct{ Source, Target string }
			Command     []string
			DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
		}
		Configs          map[string]struct{ Content string }
		Secrets, Volumes map[string]any
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Services) != 5 {
		t.Errorf("%d services", len(file.Services))
	}
	// A server that is not there is an error of PostgreSQL, with exit code 1; a usage is one with 2.
	parses := func(address string, args ...string) {
		t.Helper()
		cmd := exec.Command("thread-net", args...)
		cmd.Env = append(os.Environ(), "THREAD_DIR="+address, "PGPASSFILE=/nonexistent")
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "Error: PostgreSQL: ") {
			t.Errorf("%q: %v: %s", args, err, out)
		}
	}
	address := ""
	for name, s := range file.Services {
		if (s.Image == "") == (s.Build.Dockerfile == "") {
			t.Errorf("%s has neither an image nor a Dockerfile, or both", name)
		}
		if s.Build.Dockerfile != "" {
			if _, err := os.Stat(filepath.Join(dir, s.Build.Context, s.Build.Dockerfile)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for on := range s.DependsOn {
			if file.Services[on].Image == "" && file.Services[on].Build.Context == "" {
				t.Errorf("%s depends on %s", name, on)
			}
		}
		for _, secret := range s.Secrets {
			if file.Secrets[secret] == nil {
				t.Errorf("%s: no secret %s", name, secret)
			}
		}
		for _, volume := range s.Volumes {
			of, _, _ := strings.Cut(volume, ":")
			if _, ok := file.Volumes[of]; !ok {
				t.Errorf("%s: no volume %s", name, of)
			}
		}
		for _, c := range s.Configs {
			if file.Configs[c.Source].Content == "" {
				t.Errorf("%s: no config %s", name, c.Source)
			}
		}
		if url := s.Environment["THREAD_DIR"]; url != "" {
			if !strings.Contains(url, "@primary,standby/") {
				t.Errorf("%s: %s does not name both hosts", name, url)
			}
			address = strings.Replace(url, "primary,standby", "127.0.0.1:1,127.0.0.1:1", 1)
		}
		if len(s.Command) > 0 && s.Command[0] == "thread-net" {
			parses(address, s.Command[1:]...)
		}
	}
	word := regexp.MustCompile(`(?m)^ *(?:exec |! )?(thread-net|psql|pg_basebackup|postgres)\b`)
	seen := map[string]bool{}
	for name, c := range file.Configs {
		script := strings.ReplaceAll(c.Content, "$$", "$")
		check := exec.Command("sh", "-n")
		check.Stdin = strings.NewReader(script)
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		for _, m := range word.FindAllStringSubmatch(script, -1) {
			seen[m[1]] = true
		}
		if name != "setup" {
			continue
		}
		// Its lines one by one, as the shell reads them.
		for _, line := range strings.Split(strings.ReplaceAll(script, "||\n", "||"), "\n") {
			for _, part := range strings.Split(line, "||") {
				if part = strings.TrimSpace(part); strings.HasPrefix(part, "thread-net ") {
					part = regexp.MustCompile(` (2>/dev/null|>/dev/null 2>&1)`).ReplaceAllString(part, "")
					out, err := exec.Command("sh", "-c", "THREAD_DIR=$0; set -- "+strings.TrimPrefix(part, "thread-net ")+`; printf '%s\n' "$@"`, address).Output()
					if err != nil {
						t.Fatal(err)
					}
					parses(address, strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")...)
				}
			}
		}
	}
	if len(seen) != 4 {
		t.Errorf("the scripts run %v", seen)
	}
}

// TestStandbyNames: with the setting of examples/fleet a base backup is not a standby that a
// COMMIT waits for, and the standby of that file is.
func TestStandbyNames(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "fleet", "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`synchronous_standby_names = '([^']*)'`).FindSubmatch(data)
	if names == nil || !strings.Contains(string(data), "exec postgres -c cluster_name=standby") || !strings.Contains(string(data), `"cluster_name=primary"`) {
		t.Fatal("the servers of the example have no names")
	}
	s := newServers(t)
	primary := s.at(0, 0)
	s.run("initdb", "-D", primary.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
	primary.start()
	primary.sql("1", "SELECT 1")
	primary.sql("", "ALTER SYSTEM SET synchronous_standby_names = '"+string(names[1])+"'")
	primary.sql("t", "SELECT pg_reload_conf()")
	primary.sql(string(names[1]), "SHOW synchronous_standby_names")
	backup := s.command(t.Context(), "pg_basebackup", "-h", primary.socket, "-U", "postgres", "-D", filepath.Join(s.dir, "copy"), "-X", "stream", "-c", "fast", "--max-rate=32k")
	if err := backup.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = backup.Process.Kill(); _ = backup.Wait() }()
	primary.sql("async", "SELECT sync_state FROM pg_stat_replication WHERE application_name = 'pg_basebackup' AND state = 'streaming'")
	standby := s.command(t.Context(), "pg_receivewal", "-d", "host="+primary.socket+" user=postgres application_name=standby", "-D", s.dir, "--synchronous", "--no-loop")
	if err := standby.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = standby.Process.Kill(); _ = standby.Wait() }()
	primary.sql("t", "SELECT sync_state IN ('sync', 'quorum') FROM pg_stat_replication WHERE application_name = 'standby' AND state = 'streaming'")
}
