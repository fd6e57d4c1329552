package page

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"hash/fnv"
	"html/template"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// haveHeader is in the request of a page that is open: the version that it shows. The
// answer is then what has changed since.
const haveHeader = "X-Thread-Have"

// versionMark stands in a page where its version will be. Nothing before it is of others.
var versionMark = rand.Text()

// parts are a page that was taken apart. Templates mark its parts with NUL, which no text
// in a page can have: html/template replaces it.
type parts struct {
	page    []byte
	html    map[string][]byte
	sums    map[string]uint64   // of html, without ages
	lists   map[string][]string // ids of the parts in each list
	frame   uint64              // a hash of main without its parts
	version string
}

// put writes parts of an element. Texts in them are escaped.
type put func(parts ...string)

// keyed is a list of elements with the marks of their parts, which write writes. It takes a
// fraction of the time of a template, for lists that may be long.
func keyed[T any](list []T, id func(one *T) string, write func(put put, one *T, id string)) template.HTML {
	var b strings.Builder
	put := func(parts ...string) {
		for _, s := range parts {
			b.WriteString(s)
		}
	}
	for i := range list {
		key := id(&list[i])
		put("\x00(", key, "\x00")
		write(put, &list[i], key)
		put("\x00)")
		if i == 0 {
			b.Grow(len(list) * (b.Len() + b.Len()/8)) // the others are about as long
		}
	}
	return template.HTML(b.String()) //nolint:gosec // each text in it is escaped
}

// inMain returns what is within main, false without one.
func inMain(page []byte) ([]byte, bool) {
	begin := bytes.Index(page, []byte("<main"))
	end := bytes.LastIndex(page, []byte("</main>"))
	if begin < 0 || end < begin {
		return nil, false
	}
	_, main, found := bytes.Cut(page[begin:end], []byte(">"))
	return main, found
}

// ageMark is in the tag of a time whose text the script keeps up: that is not a change.
const ageMark = ` data-a="`

// split takes a page apart.
func split(text []byte) *parts {
	p := &parts{html: map[string][]byte{}, sums: map[string]uint64{}, lists: map[string][]string{}}
	var page, frame bytes.Buffer
	page.Grow(len(text)) // it stays where it is: html is of it
	var list, key string
	begin := 0
	for len(text) > 0 {
		at := bytes.IndexByte(text, 0)
		if at < 0 || at+1 >= len(text) {
			at = len(text)
		}
		page.Write(text[:at])
		if key == "" {
			frame.Write(text[:at])
		}
		if at == len(text) {
			break
		}
		kind := text[at+1]
		text = text[at+2:]
		switch kind {
		case '(', '[':
			id, rest, _ := bytes.Cut(text, []byte{0})
			text = rest
			if kind == '[' {
				list = string(id)
				p.lists[list] = []string{}
				continue
			}
			key, begin = string(id), page.Len()
			if list != "" {
				p.lists[list] = append(p.lists[list], key)
			}
		case ')':
			html := bytes.TrimSpace(page.Bytes()[begin:])
			p.html[key], p.sums[key] = html, hashOf(html)
			key = ""
		case ']':
			list = ""
		}
	}
	p.page = page.Bytes()
	if main, ok := inMain(frame.Bytes()); ok {
		p.frame = hashOf(main)
	}
	p.version = p.hash()
	return p
}

// hashOf returns a hash of HTML without the texts of ages.
func hashOf(html []byte) uint64 {
	h := fnv.New64a()
	for {
		i := bytes.Index(html, []byte(ageMark))
		if i < 0 {
			break
		}
		end := i + bytes.IndexByte(html[i:], '>') + 1
		if end <= i {
			break
		}
		_, _ = h.Write(html[:end]) // never fails
		html = html[end:]
		if next := bytes.IndexByte(html, '<'); next >= 0 {
			html = html[next:]
		}
	}
	_, _ = h.Write(html)
	return h.Sum64()
}

// hash is one of all parts.
func (p *parts) hash() string {
	h := fnv.New64a()
	var line []byte
	for _, id := range slices.Sorted(maps.Keys(p.sums)) {
		line = strconv.AppendUint(append(append(line[:0], id...), ' '), p.sums[id], 16)
		_, _ = h.Write(append(line, 0))
	}
	fmt.Fprint(h, p.frame, p.lists)
	return fmt.Sprintf("%0*x", len(versionMark), h.Sum64()) // as long, to take its place
}

// base is what is remembered of a page that was sent.
type base struct {
	version string
	frame   uint64
	parts   map[string]uint64
}

func (p *parts) base() base { return base{p.version, p.frame, p.sums} }

// keptParts bounds how many parts are remembered, of all pages.
const keptParts = 50_000

// bases are the pages that were sent last.
type bases struct {
	mu    sync.Mutex
	list  []base // the oldest first
	parts int
}

func (b *bases) keep(p *parts) {
	one := p.base()
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.IndexFunc(b.list, func(o base) bool { return o.version == one.version }); i >= 0 {
		b.parts -= len(b.list[i].parts)
		b.list = slices.Delete(b.list, i, i+1)
	}
	b.list, b.parts = append(b.list, one), b.parts+len(one.parts)
	for b.parts > keptParts && len(b.list) > 1 {
		b.parts -= len(b.list[0].parts)
		b.list = b.list[1:]
	}
}

func (b *bases) find(version string) base {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.list {
		if one.version == version {
			return one
		}
	}
	return base{}
}

// Patches are what has changed in a page.
type Patches struct {
	Version string              `json:"v"`
	Parts   map[string]string   `json:"parts"` // elements by their ids
	Lists   map[string][]string `json:"lists"` // the ids in each list, in order
	Main    *string             `json:"main,omitempty"`
}

// changes returns what is new since a version. Of one that is not remembered, everything is.
func (b *bases) changes(have string, p *parts) Patches {
	a := Patches{Version: p.version, Parts: map[string]string{}, Lists: map[string][]string{}}
	if strings.TrimSpace(have) == p.version {
		return a
	}
	old := b.find(have)
	if old.version != "" && old.frame != p.frame {
		main, _ := inMain(p.page) // every page has one
		text := string(main)
		a.Main = &text
	}
	for id, html := range p.html {
		if old.parts[id] != p.sums[id] {
			a.Parts[id] = string(html)
		}
	}
	a.Lists = p.lists
	b.keep(p)
	return a
}
