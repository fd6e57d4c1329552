package page

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"thread/internal/signed"
)

const (
	sessionTime = 30 * 24 * time.Hour  // after which a browser logs in again
	printedTime = 10 * time.Minute     // for which the one-time address counts
	maxEnded    = 1000                 // sessions that are known to have ended before their time
	secretBytes = 32                   // of the key
	signedParts = 4                    // of a cookie: id, begin, key of who it is, signature
	cookiePath  = "/"                  // what browsers send it for
	cookieWord  = "name of the cookie" // that is signed for its name
)

// kept is what outlasts the process: the key that signs sessions, and which have ended.
type kept struct {
	Secret []byte
	Ended  map[string]time.Time // sessions that were signed out, and when they began
	Before map[string]time.Time // by the key of a client: sessions that began before count no more
}

// sessions are the browsers that have logged in. What a session is stands in its cookie,
// which is signed with a key that a restart does not change.
type sessions struct {
	cookie string        // its name: cookies of a host are for all of its ports
	keeper signed.Keeper // nil: they end with the process

	mu    sync.Mutex
	kept  kept
	once  string    // the key of the one-time address, "" when it was used
	until time.Time // it counts
}

// session is a browser that has logged in.
type session struct {
	id    string // "" for none
	key   string // of who it is, see Options.LogIn and Options.Printed
	since time.Time
}

func newSessions(keeper signed.Keeper) *sessions {
	s := &sessions{keeper: keeper}
	if keeper != nil {
		_ = json.Unmarshal(keeper.Load(), &s.kept) // what cannot be read is made again
	}
	if s.kept.Ended == nil || s.kept.Before == nil {
		s.kept.Ended, s.kept.Before = map[string]time.Time{}, map[string]time.Time{}
	}
	if len(s.kept.Secret) != secretBytes {
		s.renew()
	}
	s.cookie = "thread_" + s.sign(cookieWord)[:8]
	return s
}

// renew makes a new key: no session counts any more. The mutex is held, or not needed yet.
func (s *sessions) renew() {
	s.kept.Secret = make([]byte, secretBytes)
	_, _ = rand.Read(s.kept.Secret) // never fails
	clear(s.kept.Ended)
	clear(s.kept.Before)
	s.save()
}

func (s *sessions) save() {
	if s.keeper == nil {
		return
	}
	data, err := json.Marshal(s.kept)
	if err == nil {
		s.keeper.Save(data)
	}
}

func (s *sessions) sign(text string) string {
	mac := hmac.New(sha256.New, s.kept.Secret)
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

// of returns the session of a request, one without an id for none.
func (s *sessions) of(q *http.Request) session {
	c, err := q.Cookie(s.cookie)
	if err != nil {
		return session{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parse(c.Value, time.Now())
}

// parse reads a cookie. The mutex is held.
func (s *sessions) parse(value string, now time.Time) session {
	parts := strings.Split(value, ".")
	if len(parts) != signedParts {
		return session{}
	}
	text := strings.Join(parts[:signedParts-1], ".")
	if !hmac.Equal([]byte(s.sign(text)), []byte(parts[signedParts-1])) {
		return session{}
	}
	begin, err := strconv.ParseInt(parts[1], 10, 64)
	key, err2 := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || err2 != nil {
		return session{}
	}
	one := session{parts[0], string(key), time.UnixMilli(begin)}
	_, ended := s.kept.Ended[one.id]
	before, some := s.kept.Before[hex.EncodeToString(key)]
	if ended || some && !one.since.After(before) || now.Sub(one.since) > sessionTime || one.since.After(now.Add(sessionTime)) {
		return session{}
	}
	return one
}

// begin makes a session, and the cookie for it.
func (s *sessions) begin(rw http.ResponseWriter, key string, secure bool) {
	id, now := rand.Text(), time.Now().Truncate(time.Millisecond)
	s.mu.Lock()
	if before, some := s.kept.Before[hex.EncodeToString([]byte(key))]; some && !now.After(before) {
		now = before.Add(time.Millisecond) // the clock was set back, or stands
	}
	text := id + "." + strconv.FormatInt(now.UnixMilli(), 10) + "." + base64.RawURLEncoding.EncodeToString([]byte(key))
	value := text + "." + s.sign(text)
	s.mu.Unlock()
	http.SetCookie(rw, &http.Cookie{Name: s.cookie, Value: value, Path: cookiePath, MaxAge: int(sessionTime.Seconds()),
		HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode})
}

// end ends a session, or all of the same client.
func (s *sessions) end(me session, all bool) {
	if me.id == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.kept.Ended, func(_ string, since time.Time) bool { return now.Sub(since) > sessionTime })
	switch {
	case all:
		s.kept.Before[hex.EncodeToString([]byte(me.key))] = later(now.Truncate(time.Millisecond), me.since)
	case len(s.kept.Ended) >= maxEnded: // none of them may count again
		s.renew()
		return
	default:
		s.kept.Ended[me.id] = me.since
	}
	s.save()
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// Settings are the settings of the own session.
type Settings struct {
	Changes bool   `json:"may_change"`
	Since   string `json:"logged_in_at,omitempty"`
}
