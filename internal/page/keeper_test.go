package page

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// memory is a Keeper.
type memory struct{ data []byte }

func (m *memory) Load() []byte     { return m.data }
func (m *memory) Save(data []byte) { m.data = data }

// TestSessions: a session outlasts the process, ends after its time, when its browser or
// another one of the client signs out, and is not to be made up.
func TestSessions(t *testing.T) {
	keeper := &memory{}
	s := newSessions(keeper)
	enter := func(key string) *http.Cookie {
		rw := httptest.NewRecorder()
		s.begin(rw, key, true)
		c := rw.Result().Cookies()[0]
		if !c.Secure || !c.HttpOnly || c.MaxAge != int(sessionTime.Seconds()) || c.SameSite != http.SameSiteStrictMode {
			t.Errorf("the cookie is %v", c)
		}
		return c
	}
	of := func(c *http.Cookie) session {
		q := httptest.NewRequest("GET", "/", nil)
		q.AddCookie(c)
		return s.of(q)
	}
	a, b, other := enter("key.1"), enter("key.1"), enter("\x00\xff")
	if one := of(a); one.id == "" || one.key != "key.1" || of(other).key != "\x00\xff" || of(b).id == one.id {
		t.Errorf("%+v", one)
	}
	for i := range len(a.Value) { // signed as a whole
		forged := *a
		forged.Value = a.Value[:i] + string(a.Value[i]^1) + a.Value[i+1:]
		if one := of(&forged); one.id != "" {
			t.Errorf("%q is a session: %+v", forged.Value, one)
		}
	}
	s = newSessions(keeper)
	if of(a).id == "" || of(other).id == "" {
		t.Error("a restart logs out")
	}
	s.end(of(a), false)
	if s = newSessions(keeper); of(a).id != "" || of(b).id == "" {
		t.Error("signing out does not end one session, after a restart")
	}
	s.end(of(b), true)
	if s = newSessions(keeper); of(b).id != "" || of(other).id == "" {
		t.Error("signing out everywhere does not end those of the client, after a restart")
	}
	if c := enter("key.1"); of(c).id == "" {
		t.Error("one cannot log in after that")
	}
	if one := s.parse(other.Value, time.Now().Add(sessionTime+time.Minute)); one.id != "" {
		t.Errorf("it does not end: %+v", one)
	}
	s.renew()
	if of(other).id != "" {
		t.Error("a session outlasts its key")
	}
	for _, bad := range []string{"", "{", `{"Secret":"AA=="}`, "null"} {
		if s := newSessions(&memory{[]byte(bad)}); len(s.kept.Secret) != secretBytes || !strings.HasPrefix(s.cookie, "thread_") {
			t.Errorf("%q: %+v", bad, s.kept)
		}
	}
	// The printed address counts once, and for ten minutes.
	p := &Page{sessions: newSessions(nil)}
	key := strings.TrimPrefix(p.OneTime(), "/open?key=")
	if !p.sessions.take(key) || p.sessions.take(key) {
		t.Error("it does not count once")
	}
	key = strings.TrimPrefix(p.OneTime(), "/open?key=")
	p.sessions.until = time.Now()
	if p.sessions.take(key) {
		t.Error("it counts after its time")
	}
}
