#!/bin/sh
# What the schedule starts at night: a report that waits for the mails of the day. A day without mails
# has no group, and then there is no report.
cat >/dev/null # the event
thread run enqueue --agent report --unique "report-$(date +%F)" --after-group "mails-$(date +%F)" || true
