package filter

// function is a scalar function that filters have.
type function uint8

const (
	fnNone function = iota
	fnAbs
	fnChar
	fnCoalesce
	fnDate
	fnDateTime
	fnGlob
	fnHex
	fnIif
	fnInstr
	fnJSONArrayLength
	fnJSONExtract
	fnJSONType
	fnJSONValid
	fnJulianDay
	fnLength
	fnLike
	fnLower
	fnLTrim
	fnMax
	fnMin
	fnNullIf
	fnReplace
	fnRTrim
	fnStrftime
	fnSubstr
	fnTime
	fnTrim
	fnTypeof
	fnUnicode
	fnUnixEpoch
	fnUpper
)

// maxArgs is SQLite's limit on the arguments of a function.
const maxArgs = 1000

// lookupFunction finds a function by its lower-case name, with the least and the
// greatest number of its arguments.
func lookupFunction(lower string) (fn function, least, most int) {
	switch lower {
	case "abs":
		return fnAbs, 1, 1
	case "char":
		return fnChar, 0, maxArgs
	case "coalesce":
		return fnCoalesce, 2, maxArgs
	case "ifnull":
		return fnCoalesce, 2, 2
	case "date":
		return fnDate, 0, maxArgs
	case "datetime":
		return fnDateTime, 0, maxArgs
	case "glob":
		return fnGlob, 2, 2
	case "hex":
		return fnHex, 1, 1
	case "iif":
		return fnIif, 3, 3
	case "instr":
		return fnInstr, 2, 2
	case "json_array_length":
		return fnJSONArrayLength, 1, 2
	case "json_extract":
		return fnJSONExtract, 2, 2
	case "json_type":
		return fnJSONType, 1, 2
	case "json_valid":
		return fnJSONValid, 1, 1
	case "julianday":
		return fnJulianDay, 0, maxArgs
	case "length":
		return fnLength, 1, 1
	case "like":
		return fnLike, 2, 3
	case "lower":
		return fnLower, 1, 1
	case "ltrim":
		return fnLTrim, 1, 2
	case "max":
		return fnMax, 2, maxArgs
	case "min":
		return fnMin, 2, maxArgs
	case "nullif":
		return fnNullIf, 2, 2
	case "replace":
		return fnReplace, 3, 3
	case "rtrim":
		return fnRTrim, 1, 2
	case "strftime":
		return fnStrftime, 1, maxArgs
	case "substr", "substring":
		return fnSubstr, 2, 3
	case "time":
		return fnTime, 0, maxArgs
	case "trim":
		return fnTrim, 1, 2
	case "typeof":
		return fnTypeof, 1, 1
	case "unicode":
		return fnUnicode, 1, 1
	case "unixepoch":
		return fnUnixEpoch, 0, maxArgs
	case "upper":
		return fnUpper, 1, 1
	}
	return fnNone, 0, 0
}

// refusal says why a function of SQLite is not supported; for a name
// it does not know either, what is empty.
func refusal(lower string) (what, hint string) {
	switch lower {
	case "count", "sum", "avg", "total", "group_concat", "string_agg",
		"json_group_array", "json_group_object", "median", "percentile":
		return "an aggregate", "a filter looks at one event; aggregates are not supported"
	case "row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile",
		"lag", "lead", "first_value", "last_value", "nth_value":
		return "a window function", "a filter looks at one event; window functions are not supported"
	case "printf", "format", "round", "quote", "soundex", "concat", "concat_ws",
		"octet_length", "unhex", "unistr", "unistr_quote", "zeroblob", "sign", "likely",
		"unlikely", "likelihood", "if", "timediff", "subtype":
		return "not supported in filters", "its result differs between SQLite versions or is not needed to select events"
	case "json", "json_array", "json_object", "json_quote", "json_set", "json_insert",
		"json_replace", "json_remove", "json_patch", "json_pretty", "json_error_position",
		"jsonb", "jsonb_extract", "json_each", "json_tree":
		return "not supported in filters", "use json_extract, json_type, json_array_length, json_valid, -> or ->>"
	case "random", "randomblob", "changes", "total_changes", "last_insert_rowid",
		"sqlite_version", "sqlite_source_id", "sqlite_offset", "load_extension",
		"sqlite_compileoption_used", "sqlite_compileoption_get":
		return "not supported in filters", "a filter may depend on the event and the time only"
	case "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "ceiling",
		"cos", "cosh", "degrees", "exp", "floor", "ln", "log", "log10", "log2", "mod",
		"pi", "pow", "power", "radians", "sin", "sinh", "sqrt", "tan", "tanh", "trunc":
		return "not supported in filters", "write arithmetic with + - * / %"
	case "current_date", "current_time", "current_timestamp":
		return "not supported in filters", "use date('now'), time('now') or datetime('now')"
	case "regexp", "match":
		return "", "use LIKE '%…%' or GLOB '*…*'"
	}
	return "", "the functions are listed in docs/reference/filter.md"
}
