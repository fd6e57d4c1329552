package lane

// Notes are values kept with the active run of a session for as long as it is active.
// Examples are a snapshot of its transcript, or a request that it picks up later.

// PutNote keeps a value under a key. It returns false, and keeps nothing, when
// the session has no active run.
func (r *Registry) PutNote(session, key string, value any) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.runs[session]
	if rec == nil {
		return false
	}
	if rec.notes == nil {
		rec.notes = make(map[string]any)
	}
	rec.notes[key] = value
	return true
}

// Note returns the value under a key, and whether there is one.
func (r *Registry) Note(session, key string) (any, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.runs[session]
	if rec == nil {
		return nil, false
	}
	value, ok := rec.notes[key]
	return value, ok
}

// TakeNote returns the value under a key and forgets it: of several callers one
// gets it.
func (r *Registry) TakeNote(session, key string) (any, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.runs[session]
	if rec == nil {
		return nil, false
	}
	value, ok := rec.notes[key]
	delete(rec.notes, key)
	return value, ok
}
