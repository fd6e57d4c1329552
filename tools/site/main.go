// Command site makes static pages of the documents: site FROM TO. They need no server:
// links are relative, and the index that search reads is a script.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "Error: two directories are needed - run site FROM TO")
		os.Exit(2)
	}
	if err := build(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "Error: %v\n", err)
		os.Exit(1)
	}
}

// entry is a page in the index of the search.
type entry struct{ Path, Title, Text string }

var (
	title   = regexp.MustCompile(`(?m)^# (.*)$`)
	comment = regexp.MustCompile(`(?s)<!--.*?-->\n?`)
	mdLink  = regexp.MustCompile(`href="([^":]*)\.md(#[^"]*)?"`)
	tag     = regexp.MustCompile(`(?s)<[^>]*>`)
	// Only the first word behind a fence is a language; the others are for the test.
	mark = regexp.MustCompile("(?m)^( *```[a-z]+) .*$")
)

func build(from, to string) error {
	md := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	var index []entry
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(from, path)
		name = filepath.ToSlash(name)
		switch {
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && name != "." || name == "site" || name == "release"):
			return filepath.SkipDir
		case strings.HasSuffix(name, ".png") && strings.HasPrefix(name, "docs/"), name == "LICENSE":
			return copyFile(path, filepath.Join(to, name))
		case !strings.HasSuffix(name, ".md") || strings.Contains(name, "testdata/"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text = mark.ReplaceAll(comment.ReplaceAll(text, nil), []byte("$1"))
		var body bytes.Buffer
		if err := md.Convert(text, &body); err != nil {
			return err
		}
		heading := name
		if m := title.FindSubmatch(text); m != nil {
			heading = string(m[1])
		}
		target := strings.TrimSuffix(name, ".md") + ".html"
		index = append(index, entry{target, heading, strings.Join(strings.Fields(tag.ReplaceAllString(body.String(), " ")), " ")})
		return write(filepath.Join(to, target), page, map[string]any{
			"Title": heading, "Root": strings.Repeat("../", strings.Count(name, "/")),
			"Body": template.HTML(mdLink.ReplaceAllString(body.String(), `href="$1.html$2"`)),
		})
	})
	if err != nil {
		return err
	}
	data, err := json.Marshal(index)
	if err != nil {
		return err
	}
	script := append(append([]byte("const pages = "), data...), []byte(search)...)
	if err := os.WriteFile(filepath.Join(to, "search.js"), script, 0o644); err != nil {
		return err
	}
	return write(filepath.Join(to, "index.html"), redirect, nil)
}

func write(path string, t *template.Template, data any) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, data); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

var redirect = template.Must(template.New("").Parse(`<!doctype html><meta http-equiv="refresh" content="0; url=README.html"><a href="README.html">thread</a>`))

var page = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{{.Title}} · thread</title>
<style>body{font:1rem/1.5 system-ui,sans-serif;max-width:48rem;margin:auto;padding:1rem}pre{overflow:auto;padding:.7rem;border:1px solid #8886}
table{border-collapse:collapse;display:block;overflow:auto}td,th{border:1px solid #8886;padding:.3rem .6rem;text-align:left}img{max-width:100%}</style>
<nav><a href="{{.Root}}README.html">thread</a> · <a href="{{.Root}}docs/README.html">documents</a> · <a href="{{.Root}}docs/CHOOSING.html">choosing</a>
· <label>search <input id="q" type="search" data-root="{{.Root}}"></label></nav><ul id="found"></ul>
<main>{{.Body}}</main><script src="{{.Root}}search.js"></script></html>
`))

// search shows the pages that have all words, those with the words in their title first.
const search = `;
const q = document.getElementById("q"), found = document.getElementById("found");
q.addEventListener("input", () => {
  const words = q.value.toLowerCase().split(/\s+/).filter(Boolean);
  const score = p => words.every(w => p.Title.toLowerCase().includes(w)) ? 2 : words.every(w => (p.Title + " " + p.Text).toLowerCase().includes(w)) ? 1 : 0;
  found.replaceChildren(...(words.length ? pages.filter(score).sort((a, b) => score(b) - score(a)).slice(0, 12) : []).map(p => {
    const a = document.createElement("a"), li = document.createElement("li");
    a.href = q.dataset.root + p.Path; a.textContent = p.Title; li.append(a); return li;
  }));
});
`
