//go:build lite

package filter

// evaluator and machine are of programs that decide events by expr.
type (
	evaluator struct{}
	machine   struct{}
)

// Expr returns "": this program is built without expr.
func (f *Filter) Expr() string { return "" }

func (m *Matcher) match(root *node) (bool, error) { return m.walk(root) }
