package serve

import (
	"strings"
	"testing"

	"thread/internal/api"
)

// FuzzParseClients: what is taken as a list has a name, a right and a token for each, that
// a request can have, and says the same again.
func FuzzParseClients(f *testing.F) {
	for _, text := range []string{"t", "a read t", "# x\na read t\r\nb admin u\n", "a\tb c d", "\x00"} {
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
			if one.Name == "" || one.Token == "" || rightsOf(one.Rights) == api.None || c.find(one.Token).name != one.Name {
				t.Fatalf("%+v", one)
			}
			again.WriteString(one.Name + " " + one.Rights + " " + one.Token + "\n")
		}
		if c.open() || c.find("") != nil {
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
