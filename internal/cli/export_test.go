package cli

var (
	NewParser = newParser
	Fill      = fill
	Quick     = quick
)
