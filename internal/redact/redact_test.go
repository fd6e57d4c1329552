package redact

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const pem = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIEhunter2AIBAAKCAQEAhunter2\nabcdhunter2efgh/+==\n-----END RSA PRIVATE KEY-----"

func TestText(t *testing.T) {
	for _, s := range []string{
		"password=hunter2", "PASSWD: hunter2", "pwd = hunter2", "token=hunter2;x", "api_key: hunter2", "api-key=hunter2", "secret=hunter2",
		"Authorization: Bearer hunter2", "Basic hunter2==", "sk-hunter2", "amqp://user:hunter2@host:5672/", "redis://:hunter2@h1,redis://:hunter2@h2",
		"sasl_password=hunter2", "aws_secret_access_key = hunter2", `{"password": "hunter2"}`, `{"session_token":"x hunter2"}`, "'token': 'hunter2'",
		`{\"password\":\"hunter2\"}`, "passphrase=hunter2&a=b", "postgres://u:p@hunter2@h/db", `{"client_secret":"a\"hunter2"}`,
		"mysql --password hunter2 -h db", "mysql --password 'a hunter2'", "run --token hunter2", "--api-key hunter2", "--db-pass hunter2", "-token hunter2", `["--password", "hunter2"]`,
		"--client-secret \"hunter2 x\"", "--password -hunter2", "./h --credentials hunter2", "./h --tokens hunter2", "./h --auth hunter2", "./h --db-auth 'a hunter2'", "./h --pw hunter2",
		"curl -u user:hunter2 https://h", "curl -uuser:hunter2 h", "curl --user user:hunter2", "curl --proxy-user=user:hunter2", `["-u","user:hunter2"]`, "wget --user 'a:hunter2'",
		"authorization: hunter2", "AUTHORIZATION=hunter2", "curl -H 'Authorization: Token hunter2' url", `{"authorization":"Digest username=\"u\", response=\"hunter2\""}`,
		"Proxy-Authorization: NTLM hunter2", `{\"Authorization\":\"hunter2\"}`, `{"Authorization":["hunter2"]}`, "map[Authorization:[Custom hunter2]]",
		"Cookie: a=1; session=hunter2", "set-cookie: sid=hunter2; Path=/", `{"cookie":"sid=hunter2"}`, "curl --cookie sid=hunter2",
		pem, "key: " + strings.ReplaceAll(pem, "\n", `\n`), pem[:60], pem[40:], strings.ReplaceAll(pem[60:], "\n", " "), "-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2",
		"ghp_hunter2ABCDEF", "github_pat_11hunter2", "glpat-hunter2abc", "xoxb-123-hunter2", "npm_hunter2abcdef", "sk_live_hunter2abc", "whsec_hunter2abc", "hf_hunter2abcdef", "dop_v1_hunter2",
		"AIzahunter2hunter2hunter2hunter2hunter2", "ya29.hunter2abcdef", "SG.hunter2hunter2.x", "eyJhbGciOiJI.eyJhunter2.c2lnhunter2",
		`password="hunter2`, "token='hunter2 cut", "AccountKey=hunter2==;x", "DB_PASS=hunter2", "pass: hunter2", "https://h/?key=hunter2&page=2", "private_key: hunter2",
	} {
		if got := Text(s); strings.Contains(got, "hunter2") || !strings.Contains(got, "***") {
			t.Errorf("%s: %s", s, got)
		}
	}
	for s, want := range map[string]string{
		"AKIAIOSFODNN7EXAMPLE": "***", "-u user:x y": "-u user:*** y", "run --api-key=abc123 --verbose": "run --api-key=*** --verbose",
		"curl https://h/?key=a&token=b&page=2": "curl https://h/?key=***&token=***&page=2", "bearer x, BEARER y": "bearer ***, BEARER ***", "token=Bearer abc": "token=*** ***", `key=password="a b" x`: "key=password=*** x",
		"İ secret=abc": "İ secret=***", "curl -H 'Authorization: Bearer abc.def' url": "curl -H 'Authorization: ***' url", "before\n" + pem + "\nafter": "before\n*** PRIVATE KEY ***\nafter",
		"authorization: a\nnext line": "authorization: ***\nnext line", "--token x --verbose": "--token *** --verbose",
	} {
		if got := Text(s); got != want {
			t.Errorf("%q: %q, not %q", s, got, want)
		}
	}
	for _, s := range []string{
		"", "order 7 failed", "http://host:80/path", "basically fine", "a task-force", "x=y", "push: source=self type=message id=1", "password=", "monkey =1 key = 2", "key=7",
		"the token has expired", "no password was given", "3 tests passed: a, b", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "--token --verbose", "--author alice", "--authority x", "bypass: on",
		"sort -u file: done", "id -u", "2026-03-18T10:30:00Z INFO -up", "cookies are fine", "--user alice",
	} {
		if got := Text(s); got != s {
			t.Errorf("%q: %q", s, got)
		}
	}
}

// Property 23: no credential survives, wherever it is.
func TestPropertyText(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		secret := rapid.StringMatching(`[A-Za-z0-9]{8,20}`).Draw(rt, "secret")
		form := rapid.SampledFrom([]string{"password=%s", "api_key: %s", "db_password=%s", `{"token":"%s"}`, `{"a":{"secret": "%s"}}`, "Bearer %s", "Basic %s",
			"amqp://user:%s@host", "sk-%s", `{\"session_token\":\"%s\"}`, "AWS_SECRET_ACCESS_KEY=%s", "--password %s", "--token '%s'", "-u me:%s", "authorization: %s", "Cookie: a=%s",
			"ghp_%s", "-----BEGIN PRIVATE KEY-----\n%s\n-----END PRIVATE KEY-----"}).Draw(rt, "form")
		word := rapid.StringMatching(`[ a-z0-9,.]{0,20}`)
		text := word.Draw(rt, "before") + " " + fmt.Sprintf(form, secret) + " " + word.Draw(rt, "after")
		if got := Text(text); strings.Contains(got, secret) {
			rt.Fatalf("%s: %s", text, got)
		}
		if got := Text(Text(text)); got != Text(text) {
			rt.Fatalf("not stable: %s", got)
		}
	})
}

// The quick look before an expression never changes what it finds.
func TestPropertyQuickly(t *testing.T) {
	piece := rapid.SampledFrom([]string{"bearer", "BASIC", "sk-", "://", "@", ":", "=", " ", "\t", "passw", "passwd", "PassPhrase", "pwd", "toKen", "api_key", "apikey", "ſecret",
		"to\u212Aen", "secret", "credential", "authorization", "x", "7", "\"", "'", "\\", "_", "user", ",", "-u", "--", "cooKie", "coo\u212Aie", "?key=", "ghp_", "gho_", "github_pat_", "xoxb-", "npm_", "sk_", "live_", "SG.", "shpat_", "AGE-SECRET-KEY-", "ya29.", "hvs.", "AKIA", "aaaaaaaaaaaaaaaa", "eyJ", ".", "pass",
		"-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"})
	rapid.Check(t, func(rt *rapid.T) {
		s := strings.Join(rapid.SliceOfN(piece, 0, 12).Draw(rt, "pieces"), "")
		slow := s
		for _, p := range patterns {
			slow = p.expr().ReplaceAllString(slow, p.with)
		}
		if got := Text(s); got != slow {
			rt.Fatalf("%q: %q, not %q", s, got, slow)
		}
		if got := Name(s); got != secretKey().MatchString(s) {
			rt.Fatalf("%q: %t", s, got)
		}
	})
}

func BenchmarkText(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Text("push: source=external:mail:me:dm:alice:alice type=message id=123456 bytes=300 took=1.2ms")
	}
}
