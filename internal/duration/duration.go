// Package duration reads the durations of flags and schedules. It is internal to
// this program and makes no promise to library users.
package duration

import (
	"errors"
	"math"
	"time"
)

var errForm = errors.New("not a duration")

// Parse reads a duration in the form of time.ParseDuration without a sign, in
// which d is a unit of 24 hours and w one of 7 days: 500ms, 90s, 36h, 30d, 1d12h.
// It returns an error for one that is longer than 292 years, too.
func Parse(s string) (time.Duration, error) {
	if s == "0" {
		return 0, nil
	}
	var sum time.Duration
	for rest := s; rest != "" || s == ""; {
		number := 0
		for number < len(rest) && isNumber(rest[number]) {
			number++
		}
		end := number
		for end < len(rest) && !isNumber(rest[end]) {
			end++
		}
		if number == 0 || end == number {
			return 0, errForm
		}
		hours := time.Duration(1)
		text := rest[:end]
		switch rest[number:end] {
		case "d":
			hours, text = 24, rest[:number]+"h"
		case "w":
			hours, text = 7*24, rest[:number]+"h"
		}
		d, err := time.ParseDuration(text)
		if err != nil || d > math.MaxInt64/hours || sum > math.MaxInt64-d*hours {
			return 0, errForm
		}
		sum += d * hours
		rest = rest[end:]
	}
	return sum, nil
}

func isNumber(c byte) bool { return c >= '0' && c <= '9' || c == '.' }
