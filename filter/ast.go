package filter

import (
	"sync"

	"thread/filter/internal/like"
	"thread/filter/internal/sqldate"
	"thread/filter/internal/sqljson"
)

// op is what a node is.
type op uint8

// mirrored is a comparison with its sides exchanged.
var mirrored = [...]op{
	0: opEq, opNe - opEq: opNe, opLt - opEq: opGt, opGe - opEq: opLe,
	opLe - opEq: opGe, opGt - opEq: opLt, opIs - opEq: opIs, opIsNot - opEq: opIsNot,
}

const (
	opLiteral op = iota
	opColumn

	opNot // conditions
	opAnd
	opOr
	opIsTrue // left IS [NOT] TRUE or FALSE; neg is the NOT, literal the word

	opEq // comparisons, in pairs
	opNe
	opLt
	opGe
	opLe
	opGt
	opIs
	opIsNot

	opIsNull // neg: NOT NULL
	opIn     // left, args; neg
	opBetween
	opLike // left, right the pattern, aux.escape; neg
	opGlob

	opConcat // operators
	opAdd
	opSub
	opMul
	opDiv
	opRem
	opBitAnd
	opBitOr
	opShiftLeft
	opShiftRight
	opNegate
	opPlus
	opBitNot
	opArrow     // ->
	opArrowText // ->>

	opCase    // left the base or nil; args: when, then, …; right the ELSE or nil
	opCast    // left; aff
	opCollate // left; coll
	opCall    // fn, args

	opVariable // aux.name: only the translation makes these
)

// column is a column of events.
type column uint8

const (
	colID column = iota
	colCreatedAt
	colSource
	colType
	colSubtype
	colContent
)

// columnNames are the names in the order of the constants.
var columnNames = [...]string{"id", "created_at", "source", "type", "subtype", "content"}

// columns is a set of columns, one bit each.
type columns uint8

func (c column) set() columns { return 1 << c }

// seriesColumns are those a series fixes.
const seriesColumns columns = 1<<colSource | typeColumns

// typeColumns are those that the series of one type and subtype share.
const typeColumns columns = 1<<colType | 1<<colSubtype

// node is one node of the syntax tree. Parentheses leave no node.
type node struct {
	op   op
	neg  bool        // the NOT in IS NOT TRUE, NOT NULL, NOT IN, NOT BETWEEN, NOT LIKE
	word bool        // opLiteral: the bare TRUE or FALSE
	mark literalMark // opLiteral: what a minus in front would make of it
	col  column      // opColumn
	fn   function    // opCall
	aff  affinity    // of the node as an operand
	coll collation   // opCollate; of a comparison, IN or BETWEEN, the one it is made with
	cmp  affinity    // of a comparison, IN or BETWEEN (lower bound): the one it is made with

	uses  columns // what the value depends on
	fails bool    // evaluating may end in an error
	now   bool    // depends on the clock
	depth int16   // of the tree from here, as SQLite counts it

	pos         int // where to point: the operator or the first character
	start, end  int // the text of the node, with the parentheses inside it
	left, right *node
	args        []*node
	lit         value
	aux         *aux
}

// members gives the set of n, whose literals carry the affinity of its column
// already. The set is made when the first event is looked at, not when the
// filter is compiled.
func (a *aux) members(n *node) *literalSet {
	a.once.Do(func() {
		s := &literalSet{}
		if n.left.aff == affText {
			s.texts = make(map[string]struct{}, len(n.args))
		} else {
			s.ints = make(map[int64]struct{}, len(n.args))
		}
		for _, e := range n.args {
			s.add(e.lit)
		}
		a.set = s
	})
	return a.set
}

// literalMark singles out the numbers that read differently after a minus.
type literalMark uint8

const (
	plain       literalMark = iota
	maxPlusOne              // 9223372036854775808: REAL, but INTEGER after a minus
	minHex                  // 0x8000000000000000: not allowed after a minus
	negatedOnce             // a literal that has had its minus
	emptyIn                 // IN (): false, but not a 0 that was written
)

// aux holds what few nodes have, worked out once by the checker.
type aux struct {
	high    *node    // BETWEEN: the upper bound
	cmp     affinity // BETWEEN: of the comparison with high
	escape  *node    // LIKE … ESCAPE
	wild    like.Wildcards
	pattern *like.Pattern  // LIKE, GLOB with a literal pattern
	path    []sqljson.Step // JSON functions and arrows
	mods    []sqldate.Modifier
	format  string // strftime
	name    string // opCall: the name as written

	texts  bool      // IN: a short list of texts next to a TEXT column
	lookUp bool      // IN: a long list of literals next to a column, so that members serves
	once   sync.Once // IN: the members, made at the first use
	set    *literalSet
}

// strip passes through COLLATE to the operand itself.
func (n *node) strip() *node {
	for n.op == opCollate {
		n = n.left
	}
	return n
}

// foldAnd makes x AND 0 and 0 AND x the literal 0, as SQLite's parser does: x is
// not evaluated and cannot fail.
func (n *node) foldAnd() {
	if n.op != opAnd {
		return
	}
	for _, side := range [...]*node{n.left, n.right} {
		if side.op == opLiteral && side.mark == plain && !side.word && side.lit.k == integer && side.lit.i == 0 {
			*n = node{op: opLiteral, lit: intValue(0), pos: n.pos, start: n.start, end: n.end, depth: n.depth}
			return
		}
	}
}

// nodes hands out nodes from slabs, so that compiling allocates seldom. next is
// the size of the next slab.
type nodes struct {
	free []node
	next int
}

func (a *nodes) alloc() *node {
	if len(a.free) == 0 {
		a.free = make([]node, a.next)
		a.next = 8
	}
	n := &a.free[0]
	a.free = a.free[1:]
	return n
}
