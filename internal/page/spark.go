package page

import (
	"fmt"
	"html/template"
	"strings"
)

// Spark is a small chart, drawn by the server. Area and Line are paths in a box of Width
// by Height; Marks stand at its bottom.
type Spark struct {
	Width, Height int
	Area, Line    string
	Marks         string
	Label         string
	Class         string
	Flat          bool // nothing to draw but the ground line
}

// newSpark draws values from left to right, the largest at the top.
func newSpark(values []int64, width, height int, label string) Spark {
	s := Spark{Width: width, Height: height, Label: label}
	most := int64(0)
	for _, v := range values {
		most = max(most, v)
	}
	if s.Flat = most == 0 || len(values) < 2; s.Flat {
		return s
	}
	var b strings.Builder
	for i, v := range values {
		if i > 0 {
			b.WriteByte(' ')
		}
		x := float64(width) * float64(i) / float64(len(values)-1)
		fmt.Fprintf(&b, "%s %s", coordinate(x), coordinate(float64(height-1)-float64(height-3)*float64(v)/float64(most)))
	}
	s.Line = "M" + b.String()
	s.Area = fmt.Sprintf("M0 %dL%sL%d %dz", height, b.String(), width, height)
	return s
}

// sparkElement is a chart as it is sent.
func sparkElement(s Spark) template.HTML {
	var b strings.Builder
	class := "spark"
	if s.Class != "" {
		class += " " + s.Class
	}
	fmt.Fprintf(&b, `<svg class="%s" viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="%s">`, class, s.Width, s.Height, template.HTMLEscapeString(s.Label))
	if s.Flat && s.Marks == "" {
		fmt.Fprintf(&b, `<path class="g" d="M0 %dm0 -1H%d"/>`, s.Height, s.Width)
	} else {
		for _, path := range [][2]string{{"a", s.Area}, {"l", s.Line}, {"x", s.Marks}} {
			if path[1] != "" {
				fmt.Fprintf(&b, `<path class="%s" d="%s"/>`, path[0], path[1])
			}
		}
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // its only text is escaped
}

// newBars draws a bar for each value.
func newBars(values []int64, width, height int, label string) Spark {
	s := Spark{Width: width, Height: height, Label: label, Class: "hist"}
	most := int64(0)
	for _, v := range values {
		most = max(most, v)
	}
	if s.Flat = most == 0; s.Flat {
		return s
	}
	var b strings.Builder
	step := float64(width) / float64(len(values))
	for i, v := range values {
		if v > 0 {
			fmt.Fprintf(&b, "M%s %dV%sh%sV%dz", coordinate(float64(i)*step+1), height, coordinate(float64(height)-float64(height-2)*float64(v)/float64(most)), coordinate(step-2), height)
		}
	}
	s.Line = b.String()
	return s
}

// mark adds red marks at the bottom, of that height for each value above 0.
func (s Spark) mark(values []int64) Spark {
	var b strings.Builder
	for i, v := range values {
		if v > 0 && len(values) > 1 {
			fmt.Fprintf(&b, "M%s %dv-%d", coordinate(float64(s.Width)*float64(i)/float64(len(values)-1)), s.Height, 4)
		}
	}
	s.Marks = b.String()
	return s
}

// coordinate is a number with one digit after the point at most.
func coordinate(f float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0") }
