package api

import (
	"bytes"
	"container/list"
	"crypto/sha256"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// replayedHeader marks an answer that was kept.
const replayedHeader = "Idempotent-Replayed"

const (
	maxKey       = 255
	keptTime     = 24 * time.Hour
	keptAnswers  = 8192
	keptBytes    = 16 << 20 // of all kept answers
	maxKeptBytes = 1 << 20  // of one answer
	entryBytes   = 512      // of a kept answer next to its body
)

// Journal keeps lines of text over a restart. Load returns them, nil for none; Save
// replaces them; Append adds one, with sync durably.
type Journal interface {
	Load() []byte
	Save(text []byte)
	Append(line []byte, sync bool)
}

// repeats keeps the answers of requests that carry a key. A push has its dedupe keys
// instead, which are in the thread.
type repeats struct {
	now func() time.Time

	mu      sync.Mutex
	of      map[[sha256.Size]byte]*list.Element
	order   list.List // of *kept, the oldest first
	bytes   int
	journal Journal // nil: a restart forgets the answers
	written int     // bytes in the journal
}

// kept is a request with a key and its answer. In the journal it has a line when it
// begins, and another one when it is done or refused.
type kept struct {
	Key     []byte    `json:"key"` // sum of the key and its scope
	At      time.Time `json:"at"`
	Body    []byte    `json:"body"` // sum of the request's body
	Done    bool      `json:"done,omitempty"`
	Refused bool      `json:"refused,omitempty"`
	Status  int       `json:"status,omitempty"`
	Type    string    `json:"type,omitempty"`
	Answer  []byte    `json:"answer,omitempty"`
	Large   bool      `json:"large,omitempty"` // the answer is not kept
	cutOff  bool      // the process that had the request has ended
}

func (k *kept) sum() [sha256.Size]byte { return [sha256.Size]byte(k.Key) }

func (k *kept) size() int { return entryBytes + len(k.Answer) }

// line returns the line of the journal.
func (k *kept) line() []byte {
	text, _ := json.Marshal(k) // of these fields it does not fail
	return append(text, '\n')
}

// load takes what the journal has, and begins it again without what has ended.
func (r *repeats) load(journal Journal) {
	if r.journal = journal; journal == nil {
		return
	}
	for line := range bytes.Lines(journal.Load()) {
		k := kept{cutOff: true}
		if json.Unmarshal(line, &k) != nil || len(k.Key) != sha256.Size {
			continue // the last line of a process that was killed
		}
		if e := r.of[k.sum()]; e != nil {
			r.remove(e)
		}
		if !k.Refused {
			r.add(&k)
		}
	}
	r.trim()
	r.rewrite()
}

// rewrite replaces the journal by what is kept. The mutex is held, or not needed yet.
func (r *repeats) rewrite() {
	var text bytes.Buffer
	for e := r.order.Front(); e != nil; e = e.Next() {
		text.Write(e.Value.(*kept).line())
	}
	r.written = text.Len()
	r.journal.Save(text.Bytes())
}

// write adds a line to the journal. The mutex is held.
func (r *repeats) write(k *kept) {
	if r.journal == nil {
		return
	}
	line := k.line()
	if r.written += len(line); r.written > 4*keptBytes { // base64 of what is kept, and as much of what has ended
		r.rewrite()
		return
	}
	r.journal.Append(line, !k.Done && !k.Refused) // before anything is changed
}

// once answers a request with a key by do, or with the answer of the same request.
// Refusals are not kept: they changed nothing, so the request can be sent again.
func (r *repeats) once(rw http.ResponseWriter, q *http.Request, do func(http.ResponseWriter, *http.Request) error) error {
	key := q.Header.Get(keyHeader)
	if key == "" {
		return do(rw, q)
	}
	if len(key) > maxKey {
		return badRequest("%s has more than %d bytes", keyHeader, maxKey)
	}
	body, err := whole(q)
	if err != nil {
		return err
	}
	k, fresh := r.begin(keyOf(q, key), sha256.Sum256(body))
	if !fresh {
		return k.repeat(rw, sha256.Sum256(body))
	}
	out := &recorder{ResponseWriter: rw, status: http.StatusOK}
	defer func() { r.end(k, out) }()
	err = do(out, q)
	out.done = err == nil
	return err
}

// whole reads the body of a request into memory, and lets it be read again from there.
func whole(q *http.Request) ([]byte, error) {
	if q.ContentLength == 0 {
		return nil, nil
	}
	text, err := io.ReadAll(q.Body)
	if err != nil {
		return nil, unread(err)
	}
	q.Body = io.NopCloser(bytes.NewReader(text))
	return text, nil
}

// keyOf returns the sum of a key within its client and the resource.
func keyOf(q *http.Request, key string) [sha256.Size]byte {
	return sha256.Sum256([]byte(strings.Join([]string{q.Header.Get("Authorization"), q.URL.EscapedPath(), q.URL.RawQuery, key}, "\x00")))
}

// begin returns what is kept of a key; fresh reports whether this request is the first.
func (r *repeats) begin(key, body [sha256.Size]byte) (k kept, fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trim()
	if e := r.of[key]; e != nil {
		return *e.Value.(*kept), false
	}
	k = kept{Key: key[:], Body: body[:], At: r.now()}
	one := k
	r.add(&one)
	r.write(&k)
	return k, true
}

// add keeps a request. The mutex is held.
func (r *repeats) add(k *kept) {
	if r.of == nil {
		r.of = map[[sha256.Size]byte]*list.Element{}
	}
	r.of[k.sum()] = r.order.PushBack(k)
	r.bytes += k.size()
}

// end keeps the answer of a request, or forgets the request when it was refused.
func (r *repeats) end(k kept, out *recorder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.of[k.sum()]
	if e == nil {
		return // trimmed
	}
	if !out.done {
		r.remove(e)
		k.Refused = true
		r.write(&k)
		return
	}
	one := e.Value.(*kept)
	r.bytes -= one.size()
	k.Done, k.Status, k.Type, k.Answer, k.Large = true, out.status, out.Header().Get("Content-Type"), out.answer, out.large
	*one = k
	r.bytes += one.size()
	r.trim()
	r.write(&k)
}

// trim forgets the oldest answers beyond the bounds. The mutex is held.
func (r *repeats) trim() {
	for e := r.order.Front(); e != nil; e = r.order.Front() {
		if r.bytes <= keptBytes && r.order.Len() <= keptAnswers && r.now().Sub(e.Value.(*kept).At) < keptTime {
			return
		}
		r.remove(e)
	}
}

func (r *repeats) remove(e *list.Element) {
	k := r.order.Remove(e).(*kept)
	delete(r.of, k.sum())
	r.bytes -= k.size()
}

// repeat answers with what is kept, if the request is the same.
func (k *kept) repeat(rw http.ResponseWriter, body [sha256.Size]byte) error {
	switch {
	case !bytes.Equal(body[:], k.Body):
		return &Error{http.StatusUnprocessableEntity, "this " + keyHeader + " was sent with another body"}
	case !k.Done && k.cutOff:
		return errCutOff
	case !k.Done:
		return errInProgress
	case k.Large:
		return errLarge
	}
	answering(rw)
	rw.Header().Set(replayedHeader, "true")
	if k.Type != "" {
		rw.Header().Set("Content-Type", k.Type)
	}
	rw.WriteHeader(k.Status)
	_, _ = rw.Write(k.Answer) // the client may be gone
	return nil
}

// recorder keeps an answer while it is written.
type recorder struct {
	http.ResponseWriter
	status int
	answer []byte
	large  bool
	done   bool // the request has succeeded
}

// Unwrap is for http.ResponseController.
func (o *recorder) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// WriteHeader keeps the status.
func (o *recorder) WriteHeader(status int) {
	o.status = status
	o.ResponseWriter.WriteHeader(status)
}

// Write keeps what is written.
func (o *recorder) Write(p []byte) (int, error) {
	if len(o.answer)+len(p) > maxKeptBytes {
		o.answer, o.large = nil, true
	}
	if !o.large {
		o.answer = append(o.answer, p...)
	}
	return o.ResponseWriter.Write(p)
}
