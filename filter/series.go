package filter

// Verdict is what a filter says of a series without seeing an event of it.
type Verdict uint8

const (
	Depends Verdict = iota // the event has to be looked at
	No                     // matches no event of the series, and cannot fail on one
	Yes                    // matches every event of the series, and cannot fail on one
)

// Series says what the filter answers for the events of one series, whatever their
// id, created_at and content. It runs the filter from left to right as Match does,
// with every condition that needs more than the series left open: No means that
// whatever those turn out to be, the filter is not true and no condition that could
// fail is reached; [Yes] that it is true. It allocates nothing for comparisons, LIKE,
// IN and IS NULL.
func (f *Filter) Series(source, typ, subtype string, hasSubtype bool) Verdict {
	fr := frame{row: Row{Source: source, Type: typ, Subtype: subtype, HasSubtype: hasSubtype}, known: seriesColumns}
	return fr.verdict(f.root)
}

// Type is [Filter.Series] for all series of a type and subtype, whatever their
// source.
func (f *Filter) Type(typ, subtype string, hasSubtype bool) Verdict {
	fr := frame{row: Row{Type: typ, Subtype: subtype, HasSubtype: hasSubtype}, known: typeColumns}
	return fr.verdict(f.root)
}

func (f *frame) verdict(root *node) Verdict {
	if root == nil {
		return Yes
	}
	switch f.outcome(root, true) {
	case mayHold:
		return Yes
	case mayNot:
		return No
	}
	return Depends
}

// outcome is the set of what may come of asking whether a condition holds.
type outcome uint8

const (
	mayHold outcome = 1 << iota
	mayNot
	mayFail
)

func (o outcome) flip() outcome {
	return o&mayFail | o&mayHold<<1 | o&mayNot>>1
}

// outcome is holds with only some columns known.
func (f *frame) outcome(n *node, want bool) outcome {
	switch n.op {
	case opNot:
		return f.outcome(n.left, !want)
	case opAnd, opOr:
		goOn := mayNot // what of the left side makes the right side matter
		if (n.op == opAnd) == want {
			goOn = mayHold
		}
		left := f.outcome(n.left, want)
		if left&goOn == 0 {
			return left
		}
		return left&^goOn | f.outcome(n.right, want)
	case opIsTrue:
		o := f.outcome(n.left, n.lit.i != 0)
		if n.neg == want {
			return o.flip()
		}
		return o
	case opCase:
		if n.left == nil {
			return f.caseOutcome(n, want)
		}
	case opCall:
		if n.fn == fnIif {
			return f.choice(n.args[0], n.args[1], n.args[2], want)
		}
	}
	if n.uses&^f.known != 0 || n.now {
		if n.fails {
			return mayHold | mayNot | mayFail
		}
		return mayHold | mayNot
	}
	held := f.leaf(n, want)
	switch {
	case f.err != nil:
		f.err = nil
		return mayFail
	case held:
		return mayHold
	}
	return mayNot
}

// choice is the outcome of yes where cond holds and of no where it does not.
func (f *frame) choice(cond, yes, no *node, want bool) outcome {
	c := f.outcome(cond, true)
	o := c & mayFail
	if c&mayHold != 0 {
		o |= f.outcome(yes, want)
	}
	if c&mayNot != 0 {
		o |= f.outcome(no, want)
	}
	return o
}

func (f *frame) caseOutcome(n *node, want bool) outcome {
	var o outcome
	for i := 0; i < len(n.args); i += 2 {
		c := f.outcome(n.args[i], true)
		o |= c & mayFail
		if c&mayHold != 0 {
			o |= f.outcome(n.args[i+1], want)
		}
		if c&mayNot == 0 {
			return o
		}
	}
	if n.right == nil {
		return o | mayNot
	}
	return o | f.outcome(n.right, want)
}
