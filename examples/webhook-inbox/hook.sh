#!/bin/sh
# What a web server runs for POST /hook (CGI): the body is on stdin. It answers only
# when the event is on the disk, so a sender that gets no answer sends again, and the
# delivery's id keeps that from being a second event.
set -eu
body=$(mktemp)
trap 'rm -f "$body"' EXIT
cat > "$body"
if thread push --source "webhook:${HTTP_X_SENDER:-unknown}" --type webhook --content-file "$body" \
    --dedupe-key "${HTTP_X_DELIVERY_ID:?}" --quiet; then
  printf 'Status: 204 No Content\r\n\r\n'
else
  printf 'Status: 503 Service Unavailable\r\nRetry-After: 5\r\n\r\n'
fi
