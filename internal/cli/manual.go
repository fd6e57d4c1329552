package cli

import (
	"bytes"
	"fmt"
	"strings"
)

// manualVerb is the hidden subcommand that writes the manual pages into a
// directory: thread.1, and a page for each verb. Packages are made with it.
const manualVerb = "__man"

// ManualPages returns the pages by their file names. They carry no date, so that
// the same program always writes the same bytes.
func (p *Program) ManualPages() map[string][]byte {
	pages := map[string][]byte{p.name + ".1": p.overviewPage()}
	for i := range p.Entries {
		if p.Entries[i].Verb != nil {
			v := p.Entries[i].Verb
			pages[v.PageName()+".1"] = v.page()
		}
	}
	return pages
}

// PageName returns the name of the verb's manual page.
func (v *Verb) PageName() string { return "thread-" + strings.ReplaceAll(v.Name, " ", "-") }

func (p *Program) overviewPage() []byte {
	m := newPage(p.name, "an event queue that lives in a directory")
	m.section("SYNOPSIS")
	m.raw(".B thread\n.I command\n[flags]\n")
	m.section("DESCRIPTION")
	m.text("A thread is a directory, as a git repository is one: any process of the host pushes events into it, and " +
		"commands that are subscribed to it are run automatically when there are events for them. There is no server.")
	m.section("COMMANDS")
	for _, t := range p.Topics() {
		m.raw(".SS " + roff(t.Title) + "\n")
		for _, e := range t.Entries {
			v := e.Show()
			m.item(strings.TrimSpace(v.Name+" "+v.Args), v.Summary+". See "+v.PageName()+"(1).")
		}
	}
	m.section("ENVIRONMENT")
	m.items(environment())
	m.section("FILES")
	m.items(dataLayout())
	m.section("EXIT STATUS")
	m.items(exitCodes())
	m.section("EXAMPLES")
	m.literal(OverviewExamples)
	m.section("SEE ALSO")
	m.raw(".BR thread\\-filter (7),\n.BR thread\\-handlers (7)\n")
	return m.Bytes()
}

// page returns the verb's manual page. Everything in it is read from the entry
// and the grammar, like the verb's help.
func (v *Verb) page() []byte {
	model := v.Model()
	p := newPage(v.PageName(), v.Summary)
	p.section("SYNOPSIS")
	p.raw(".B thread " + roff(v.Name) + "\n" + roff(strings.TrimSpace(strings.TrimPrefix(v.usageLine(model), "thread "+v.Name))) + "\n")
	p.section("DESCRIPTION")
	p.text(v.Summary + ".")
	if v.Details != "" {
		p.raw(".PP\n")
		p.text(v.Details)
	}
	if len(model.Positional) > 0 {
		p.section("ARGUMENTS")
		for _, arg := range model.Positional {
			p.item("<"+arg.Name+">", arg.Help)
		}
	}
	p.section("OPTIONS")
	for _, f := range model.Flags {
		if !f.Hidden {
			p.item(FlagWords(f), flagHelp(f))
		}
	}
	p.section("EXIT STATUS")
	p.items(v.exitCodes(model))
	p.section("EXAMPLES")
	p.literal(v.Examples)
	p.section("SEE ALSO")
	p.raw(".BR thread (1),\n.BR thread\\-filter (7),\n.BR thread\\-handlers (7)\n")
	return p.Bytes()
}

// manualPage is a page in the man macros under construction.
type manualPage struct{ bytes.Buffer }

func newPage(name, summary string) *manualPage {
	p := new(manualPage)
	fmt.Fprintf(p, ".TH %s 1 \"\" \"thread %s\" \"thread\"\n.SH NAME\n%s \\- %s\n",
		strings.ToUpper(name), roff(Version()), roff(name), roff(summary))
	return p
}

func (p *manualPage) raw(s string) { p.WriteString(s) }

func (p *manualPage) section(title string) { p.raw(".SH " + title + "\n") }

// text adds a paragraph that is filled.
func (p *manualPage) text(s string) { p.raw(roff(s) + "\n") }

// item adds a term and what it means.
func (p *manualPage) item(term, meaning string) {
	p.raw(".TP\n\\fB" + roff(term) + "\\fR\n")
	p.text(meaning)
}

func (p *manualPage) items(items []item) {
	for _, it := range items {
		p.item(it.term, it.meaning)
	}
}

// literal adds lines that stay as they are.
func (p *manualPage) literal(s string) {
	p.raw(".nf\n" + roff(strings.TrimRight(s, "\n")) + "\n.fi\n")
}

// roff returns s so that a formatter prints it as it stands.
func roff(s string) string {
	lines := strings.Split(strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", "\\`", "^", `\(ha`, "~", `\(ti`).Replace(s), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
