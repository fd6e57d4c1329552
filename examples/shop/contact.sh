#!/bin/sh
# What a web server runs for POST /contact (CGI): the same in shell. The form's id keeps a second click
# from a second mail.
set -eu
if run=$(thread run enqueue --agent mail --unique "contact-${HTTP_X_FORM_ID:?}" --group "mails-$(date +%F)" \
    --retries 5 --backoff 1s..5m --timeout 30s --input-file -); then
  printf 'Status: 202 Accepted\r\nContent-Type: text/plain\r\n\r\n%s\n' "$run"
else
  printf 'Status: 503 Service Unavailable\r\nRetry-After: 5\r\n\r\n'
fi
