// Package mqtt is the adapter for topics of MQTT 5.
package mqtt

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	"github.com/eclipse/paho.golang/paho/session"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

func init() {
	adapter.Register(adapter.Spec{
		Type: "mqtt", Summary: "topics of MQTT 5, read in a session that the broker keeps", Keys: append([]adapter.Key{
			{Name: "server", Required: true, Help: "host:port, mqtt://host:port, or mqtts://host:port for TLS."},
			{Name: "client_id", Help: "The name of the session; by default consumer_group-name. One process may have it. Publishers: by default one of this thread."},
			{Name: "qos", Default: "2", OneOf: []string{"1", "2"}, Help: "The quality of service to subscribe or publish with."},
			{Name: "shared", Kind: adapter.Bool, Help: "Share the messages with the other clients of this consumer_group ($share)."},
			{Name: "retained", Kind: adapter.Bool, Default: "true", Help: "Take what the broker retains when the subscription is new."},
			{Name: "session_expiry", Kind: adapter.Duration, Default: "0", Help: "For how long the broker keeps the session while we are away; 0: for ever."},
			{Name: "receive_maximum", Kind: adapter.Number, Default: "1000", Help: "How many messages may be unacknowledged, 1 to 65535."},
			{Name: "dlq_retain", Kind: adapter.Bool, Default: "true", Help: "Let the broker retain dead letters, each under a separate topic."},
			{Name: "retain", Kind: adapter.Bool, Help: "Publishers: let the broker retain the last message of a topic."},
			{Name: "keep_alive", Kind: adapter.Duration, Default: "30s", Help: "How often to show that we live, in whole seconds."},
			{Name: "connect_timeout", Kind: adapter.Duration, Default: "30s", Help: "How long to try to connect."},
			{Name: "username", Help: "The user."},
			{Name: "password", Kind: adapter.Secret, Help: "The password."},
		}, adapter.TLSKeys...),
		Caps:       caps,
		OutCaps:    outCaps,
		Source:     func(s *adapter.Settings) (trigger.Source, error) { return newSource(s), nil },
		Sink:       func(s *adapter.Settings) (trigger.Sink, error) { return &sink{s: s}, nil },
		Check:      check,
		CheckQueue: checkQueue,
	})
}

var (
	caps    = trigger.Caps{Promise: trigger.ExactlyOnce, Condition: "of messages with QoS 2 or a message id", DLQ: true}
	outCaps = trigger.Caps{Promise: trigger.AtLeastOnce, Condition: "with a message id"}
)

func check(s *adapter.Settings) (faults []adapter.Fault) {
	bad := func(key, format string, args ...any) {
		faults = append(faults, adapter.Fault{Key: key, What: fmt.Sprintf(format, args...)})
	}
	if v := s.Text("server"); v != "" {
		if _, withTLS, err := address(v); err != nil {
			bad("server", "%v", err)
		} else if s.RequireTLS && !withTLS && strings.Contains(v, "://") {
			bad("server", "%s has no TLS: require_tls is true, write mqtts://", v)
		}
	}
	if s.RequireTLS && s.Connection["tls"] == "false" {
		bad("tls", "false is refused: require_tls is true")
	}
	if s.Text("username") == "" && s.Text("password") != "" {
		bad("password", "username and password belong together")
	}
	if n := s.Int("receive_maximum"); n < 1 || n > 65535 {
		bad("receive_maximum", "it must be from 1 to 65535, got %d", n)
	}
	if d := s.Duration("keep_alive"); d > 0 && d < time.Second || d > 65535*time.Second {
		bad("keep_alive", "it must be from 1s to 65535s, or 0 for never, got %s", d)
	}
	if len(s.Text("client_id")) > 1000 {
		bad("client_id", "it must have at most 1000 bytes")
	}
	return faults
}

// checkQueue says what is wrong with a filter to read, or a topic to publish to.
func checkQueue(queue string, in bool) string {
	switch {
	case queue == "":
		return "" // it is required anyway
	case strings.HasPrefix(queue, "$share/"):
		return "queue_name must be a filter without $share: set adapter.connection.shared and consumer_group"
	case strings.ContainsRune(queue, 0) || len(queue) > 60000:
		return "queue_name must be a topic of at most 60000 bytes without NUL"
	case !in && strings.ContainsAny(queue, "+#"):
		return "queue_name must be one topic to publish to, without + and #"
	}
	levels := strings.Split(queue, "/")
	for i, l := range levels {
		if strings.ContainsAny(l, "+#") && len(l) > 1 || l == "#" && i < len(levels)-1 {
			return fmt.Sprintf("queue_name %q is not a filter: + and # stand alone between slashes, # at the end", queue)
		}
	}
	return ""
}

// address returns host:port, and whether the scheme asks for TLS.
func address(server string) (hostPort string, withTLS bool, err error) {
	scheme, rest, ok := strings.Cut(server, "://")
	if !ok {
		scheme, rest = "mqtt", server
	}
	switch scheme {
	case "mqtt", "tcp":
	case "mqtts", "ssl", "tls":
		withTLS = true
	default:
		return "", false, fmt.Errorf("scheme %s is not built: use mqtt or mqtts", scheme)
	}
	u, err := url.Parse("mqtt://" + rest)
	switch {
	case err != nil || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "":
		return "", false, errors.New("it must be host:port, mqtt://host:port or mqtts://host:port")
	case u.User != nil:
		return "", false, errors.New("credentials do not stand in the address: give username and password")
	}
	port := u.Port()
	if port == "" {
		port = "1883"
		if withTLS {
			port = "8883"
		}
	}
	return net.JoinHostPort(u.Hostname(), port), withTLS, nil
}

// wire is a connection whose writes do not wait for ever, and whose packets are
// written one after the other.
type wire struct {
	net.Conn
	sync.Mutex
}

const writeTimeout = 30 * time.Second

func (w *wire) Write(b []byte) (int, error) {
	if err := w.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return w.Conn.Write(b)
}

func dial(ctx context.Context, s *adapter.Settings) (*wire, error) {
	hostPort, withTLS, err := address(s.Text("server"))
	if err != nil {
		return nil, err
	}
	conf, err := s.TLS()
	if err != nil {
		return nil, err
	}
	if conf == nil && withTLS {
		conf = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.Text("server_name")}
	}
	var c net.Conn
	if conf != nil {
		c, err = (&tls.Dialer{Config: conf}).DialContext(ctx, "tcp", hostPort)
	} else {
		c, err = new(net.Dialer).DialContext(ctx, "tcp", hostPort)
	}
	if err != nil {
		return nil, err
	}
	return &wire{Conn: c}, nil
}

// client is how a connection is asked for.
type client struct {
	id      string
	clean   bool   // begin again
	expiry  uint32 // seconds; math.MaxUint32: for ever
	receive uint16 // receive maximum, 0: the protocol's
	session session.SessionManager
	publish func(*paho.Publish) // told of messages with QoS 0
	lost    func(error)
}

// connect dials and says CONNECT.
func connect(ctx context.Context, s *adapter.Settings, o client) (*paho.Client, *wire, *paho.Connack, error) {
	ctx, cancel := context.WithTimeout(ctx, max(s.Duration("connect_timeout"), 100*time.Millisecond))
	defer cancel()
	w, err := dial(ctx, s)
	if err != nil {
		return nil, nil, nil, err
	}
	c := paho.NewClient(paho.ClientConfig{
		Conn: w, Session: o.session, PacketTimeout: max(s.Duration("connect_timeout"), 100*time.Millisecond),
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
			if o.publish != nil {
				o.publish(p.Packet)
			}
			return true, nil
		}},
		OnClientError: func(err error) {
			if o.lost != nil {
				o.lost(err)
			}
		},
		OnServerDisconnect: func(d *paho.Disconnect) {
			if o.lost != nil {
				o.lost(disconnected(d))
			}
		},
	})
	cp := &paho.Connect{ClientID: o.id, CleanStart: o.clean, KeepAlive: uint16(s.Duration("keep_alive") / time.Second),
		Properties: &paho.ConnectProperties{SessionExpiryInterval: &o.expiry, RequestProblemInfo: true}}
	if o.receive > 0 {
		cp.Properties.ReceiveMaximum = &o.receive
	}
	if user := s.Text("username"); user != "" {
		cp.UsernameFlag, cp.Username = true, user
		cp.PasswordFlag, cp.Password = s.Text("password") != "", []byte(s.Text("password"))
	}
	ack, err := c.Connect(ctx, cp)
	if err != nil {
		if ack != nil && ack.ReasonCode >= 0x80 {
			err = fmt.Errorf("server %s refused: %s", trigger.Redact(s.Text("server")), (&packets.Connack{ReasonCode: ack.ReasonCode}).Reason())
		}
		return nil, nil, nil, errors.Join(err, ignoreClosed(w.Close()))
	}
	return c, w, ack, nil
}

// during returns ctx until the connection ends: paho would wait for an answer that
// cannot come any more.
func during(ctx context.Context, c *paho.Client) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-c.Done():
			cancel(errLost)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// sessionTakenOver is the reason of a broker that another client with our id has
// connected to.
const sessionTakenOver = 0x8E

func disconnected(d *paho.Disconnect) error {
	if d.ReasonCode == sessionTakenOver {
		return errTakenOver
	}
	text := fmt.Sprintf("the broker has disconnected, reason 0x%02X", d.ReasonCode)
	if d.Properties != nil && d.Properties.ReasonString != "" {
		text += " " + d.Properties.ReasonString
	}
	return errors.New(text)
}

var (
	errLost         = errors.New("the connection was lost before the broker has answered")
	errNotConnected = errors.New("not connected")
	errTakenOver    = errors.New("another client has perhaps the same client_id: give each process its own adapter.connection.client_id")
)

// disconnect says goodbye, or just closes.
func disconnect(c *paho.Client) {
	_ = c.Disconnect(&paho.Disconnect{}) // the connection may be gone
}

// clean makes s a string of MQTT: UTF-8 without NUL, of at most 65,535 bytes.
func clean(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) > 65535 {
		s = strings.ToValidUTF8(s[:65535], "")
	}
	return s
}

func userProperties(h map[string]string) (list []packets.User) {
	for _, name := range adapter.Sorted(h) {
		list = append(list, packets.User{Key: clean(name), Value: clean(h[name])})
	}
	return list
}
