package outbox

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"thread/engine"
	"thread/event"
)

// Notification tells a user of an event (O-13).
type Notification struct {
	ID       int64   `json:"id"` // of the record's event
	User     string  `json:"user"`
	EventID  string  `json:"event_id"`
	Type     string  `json:"type"`
	ThreadID ID      `json:"thread_id"`
	Actor    ID      `json:"actor_user_id"`
	Preview  string  `json:"preview"`
	Created  string  `json:"created_at"`
	ReadAt   *string `json:"read_at"` // null: unread
}

func userPrefix(user string) []byte { return append(append([]byte{'u'}, user...), 0) }

func notificationKey(user string, id int64) []byte {
	return binary.BigEndian.AppendUint64(userPrefix(user), uint64(id))
}

func userKey(id int64) []byte { return binary.BigEndian.AppendUint64([]byte{'i'}, uint64(id)) }

// notify writes the notification of a record, unless it is there.
func notify(tx *engine.Tx, id int64, user string, m *Message) error {
	r, err := tx.Records(tableNotifications)
	if err != nil {
		return err
	}
	key := notificationKey(user, id)
	if r.Get(key) != nil {
		return nil
	}
	v, err := json.Marshal(Notification{ID: id, User: user, EventID: m.EventID, Type: m.EventType, ThreadID: m.ThreadID,
		Actor: m.ActorUserID, Preview: m.ContentPreview, Created: event.FormatTime(tx.Now())})
	if err != nil {
		return err
	}
	if err := r.Put(userKey(id), []byte(user)); err != nil {
		return err
	}
	return r.Put(key, v)
}

// Notifications returns the notifications of a user, newest first, at most limit; less than 1 is
// all.
func Notifications(tx *engine.Tx, user string, unread bool, limit int) (list []Notification, err error) {
	r, err := tx.Records(tableNotifications)
	if err != nil {
		return nil, err
	}
	from := userPrefix(user)
	to := append(userPrefix(user), 0xff) // the first byte of an id is below 0x80
	for rec, err := range r.Descend(from, to) {
		if err != nil {
			return nil, err
		}
		var n Notification
		if err := json.Unmarshal(rec.Value, &n); err != nil {
			return nil, fmt.Errorf("%w: notification %x: %w", engine.ErrCorrupt, rec.Key, err)
		}
		if unread && n.ReadAt != nil {
			continue
		}
		if list = append(list, n); len(list) == limit {
			break
		}
	}
	return list, nil
}

// ThreadNotifications are a user's notifications about one thread of the application.
type ThreadNotifications struct {
	ThreadID ID           `json:"thread_id"`
	Count    int          `json:"count"`
	Unread   int          `json:"unread"`
	Latest   Notification `json:"latest"`
}

// ByThread groups notifications, in the order in which the threads first appear.
func ByThread(list []Notification) (groups []ThreadNotifications) {
	at := map[string]int{}
	for i := range list {
		n := &list[i]
		key := n.ThreadID.String()
		g, ok := at[key]
		if !ok {
			g = len(groups)
			at[key] = g
			groups = append(groups, ThreadNotifications{ThreadID: n.ThreadID, Latest: *n})
		}
		groups[g].Count++
		if n.ReadAt == nil {
			groups[g].Unread++
		}
	}
	return groups
}

// MarkRead marks the notification about an event as read. found says that there is
// one, changed that it was unread.
func MarkRead(tx *engine.Tx, id int64) (found, changed bool, err error) {
	r, err := tx.Records(tableNotifications)
	if err != nil {
		return false, false, err
	}
	user := r.Get(userKey(id))
	if user == nil {
		return false, false, nil
	}
	key := notificationKey(string(user), id)
	var n Notification
	if err := json.Unmarshal(r.Get(key), &n); err != nil {
		return false, false, fmt.Errorf("%w: notification %x: %w", engine.ErrCorrupt, key, err)
	}
	if n.ReadAt != nil {
		return true, false, nil
	}
	now := event.FormatTime(tx.Now())
	n.ReadAt = &now
	v, err := json.Marshal(n)
	if err != nil {
		return true, false, err
	}
	return true, true, r.Put(key, v)
}
