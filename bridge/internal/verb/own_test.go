package verb

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
	"thread/engine"
	"thread/event"
)

// A consumer that another owner subscribed keeps handler, filter and progress; the
// consumer that the trigger or publisher subscribed itself follows its file.
func TestForeignConsumer(t *testing.T) {
	adapter.Register(adapter.Spec{Type: "nowhere", Sink: func(*adapter.Settings) (trigger.Sink, error) { return nothing{}, nil }})
	dir, file := place(t, "queue_publish: {name: mail, queue_name: events, filter: \"type = 'b'\", adapter: {type: nowhere}}\n")
	th, err := engine.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	foreign := engine.Subscription{Consumer: "mail", Handler: "./mail.sh", Filter: event.Text("type = 'a'"), Parallel: 3, Key: "source"}
	if err := th.Subscribe(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	push := func(kind string) int64 {
		e, err := th.Push(t.Context(), event.Draft{Source: "s", Type: kind, Content: "{}"})
		if err != nil {
			t.Fatal(err)
		}
		return e.ID
	}
	if err := th.Ack(t.Context(), "mail", push("a")); err != nil {
		t.Fatal(err)
	}
	consumer := func(name string) engine.ConsumerInfo {
		info, err := th.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range info.Subscriptions {
			if s.Consumer == name {
				return s
			}
		}
		t.Fatalf("no consumer %s", name)
		return engine.ConsumerInfo{}
	}
	before := consumer("mail")
	refused := func(args ...string) {
		t.Helper()
		code, _, stderr := call(args...)
		if code != 1 || !strings.HasPrefix(stderr[strings.LastIndex(stderr[:len(stderr)-1], "\n")+1:], `Error: consumer 'mail' runs "./mail.sh": another owner subscribed it - `) {
			t.Errorf("%v: %d %s", args, code, stderr)
		}
		if now := consumer("mail"); !reflect.DeepEqual(now, before) {
			t.Errorf("%v: %+v, not %+v", args, now, before)
		}
	}
	refused("publish", "run", "--thread", dir, "--config", file)
	config := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	handled := func(handler, more string) []string {
		config("queue_name: q'1\nconsumer_group: g\nname: orders\nhandler: " + handler + "\nadapter: {type: mock}\n" + more)
		return []string{"trigger", "run", "--thread", dir, "--config", file}
	}
	send := func(args []string) []string {
		return append([]string{"trigger", "send", "--body", "{}"}, args[2:]...)
	}
	refused(handled("./a.sh", "consumer: mail\n")...)
	refused(send(handled("./a.sh", "consumer: mail\n"))...)

	conf := func(args []string) error {
		c := configFlag{}
		c.Config.Value, c.Config.Set = args[len(args)-1], true
		loaded, err := c.load()
		if err != nil {
			return err
		}
		return subscribe(t.Context(), th, loaded, "")
	}
	for _, handler := range []string{"./a.sh", "./b.sh", "./b.sh"} {
		if err := conf(handled(handler, "")); err != nil {
			t.Fatal(err)
		}
		if s := consumer("orders"); !strings.HasSuffix(s.Handler, " -- sh -c "+handler) || s.Where() != "source = 'mock:q''1'" {
			t.Errorf("%+v", s)
		}
	}
	// A handler that was given by hand is not the trigger's own any more.
	err = th.Update(t.Context(), func(tx *engine.Tx) error {
		return tx.Replace("orders", func(s *engine.Subscription) { s.Handler = "./mail.sh" })
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := conf(handled("./c.sh", "")); err == nil || consumer("orders").Handler != "./mail.sh" {
		t.Error(err, consumer("orders").Handler)
	}
}

// nothing is a sink that is never connected to.
type nothing struct{ trigger.Sink }

func (nothing) Close() error { return nil }
