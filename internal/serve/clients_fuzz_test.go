package serve

import (
	"strings"
	"testing"

	"thread/internal/api"
)

// FuzzParseClients: what is taken as a list has a name, a right and a token for each, that
// a request can have, and says the same again.
func FuzzParseClients(f *testing.F) {
	for _, text := range []string{"0123456789abcdef", "a read 0123456789abcdef until=2030-01-02T03:04:05Z", "# x\na read 0123456789abcdef\r\nb admin 0123456789abcdeF threads=a,b\n", "a\tb c d", "\x00", HashToken("")} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseClients(text)
		if err != nil {
			return
		}
		var again strings.Builder
		var c clients
		c.set(list)
		for _, one := range list {
			if one.Name == "" || one.Token == "" || rightsOf(one.Rights) == api.None || len(one.Token) < MinToken {
				t.Fatalf("%+v", one)
			}
			again.WriteString(one.Name + " " + one.Rights + " " + one.Token + "\n")
		}
		if c.open() || c.find("", false) != nil {
			t.Fatal("everybody may come")
		}
		if list[0].Name[0] == '#' {
			return
		}
		if l, err := ParseClients(again.String()); err != nil || len(l) != len(list) {
			t.Fatalf("%q: %v", again.String(), err)
		}
	})
}
