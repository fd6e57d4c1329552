package engine

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"thread/internal/duration"
)

var cronParser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// parseSpec returns the times of a spec, and the spec in the words that it is
// stored in, which earlier versions of this program read, too.
func parseSpec(spec string) (times cron.Schedule, stored string, err error) {
	if strings.Contains(spec, "TZ=") {
		return nil, "", invalidf("schedule %q: a time zone cannot be given", spec)
	}
	stored = spec
	if every, ok := strings.CutPrefix(spec, "@every "); ok {
		d, err := duration.Parse(every)
		if err != nil {
			return nil, "", invalidf("schedule %q: %q is not a duration", spec, every)
		}
		// The parser makes whole seconds, and at least one, of any duration.
		if d < time.Second || d%time.Second != 0 {
			return nil, "", invalidf("schedule %q: the duration is not a number of whole seconds from 1s", spec)
		}
		if strings.ContainsAny(every, "dw") {
			stored = "@every " + d.String()
		}
	} else if fields := strings.Fields(spec); len(fields) == 5 && strings.Contains(fields[4], "7") {
		fields[4] = sundays(fields[4])
		stored = strings.Join(fields, " ")
	}
	if times, err = cronParser.Parse(stored); err != nil {
		return nil, "", invalidf("schedule %q: %v", spec, err)
	}
	return times, stored, nil
}

// sundays returns a field of weekdays with 0 for every 7: both are Sunday, and the
// parser knows only the first. What is not a weekday is left for it to refuse.
func sundays(field string) string {
	parts := strings.Split(field, ",")
	for i, part := range parts {
		days, step, stepped := strings.Cut(part, "/")
		first, last, isRange := strings.Cut(days, "-")
		switch {
		case days == "7":
			parts[i] = "0" // the only day from 7 to 7, whatever the step
		case isRange && last == "7":
			parts[i] = daysTo7(first, step, stepped, part)
		}
	}
	return strings.Join(parts, ",")
}

// daysTo7 lists the days of a range that ends in 7.
func daysTo7(first, step string, stepped bool, part string) string {
	from, err := strconv.Atoi(first)
	if err != nil {
		from = slices.Index([]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}, strings.ToLower(first))
	}
	by := 1
	if stepped {
		by, _ = strconv.Atoi(step)
	}
	if from < 0 || from > 7 || by < 1 {
		return part
	}
	var days []string
	for day := from; day <= 7; day += by {
		days = append(days, strconv.Itoa(day%7))
	}
	return strings.Join(days, ",")
}
