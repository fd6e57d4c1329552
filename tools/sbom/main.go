// Command sbom prints what a Go program, released as VERSION, was built from, as a CycloneDX 1.5
// document in JSON. It reads the program itself (runtime/debug's build
// information, which every Go program carries), so that the list is of what was
// linked and not of what a go.mod asks for. The same program gives the same bytes:
// there is no time and no random serial number in it.
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"runtime/debug"
)

type component struct {
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	PURL       string     `json:"purl,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type document struct {
	BOMFormat   string `json:"bomFormat"`
	SpecVersion string `json:"specVersion"`
	Version     int    `json:"version"`
	Metadata    struct {
		Component component `json:"component"`
	} `json:"metadata"`
	Components []component `json:"components"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom PROGRAM VERSION")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(program, version string, w io.Writer) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	doc := document{BOMFormat: "CycloneDX", SpecVersion: "1.5", Version: 1}
	doc.Metadata.Component = component{Type: "application", Name: path.Base(info.Path), Version: version}
	for _, s := range info.Settings {
		doc.Metadata.Component.Properties = append(doc.Metadata.Component.Properties, property{"go:" + s.Key, s.Value})
	}
	doc.Components = []component{{Type: "library", Name: "std", Version: info.GoVersion, PURL: "pkg:golang/std@" + info.GoVersion[len("go"):]}}
	for _, m := range info.Deps {
		doc.Components = append(doc.Components, library(m))
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(doc)
}

func library(m *debug.Module) component {
	if m.Replace != nil {
		m = m.Replace
	}
	c := component{Type: "library", Name: m.Path, Version: m.Version, PURL: "pkg:golang/" + m.Path + "@" + m.Version}
	if m.Sum != "" {
		c.Properties = []property{{"go:sum", m.Sum}} // of the module's files, as in go.sum
	}
	return c
}
