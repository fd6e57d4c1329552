#!/bin/sh
# One attempt of a job. Its input is on stdin, and its last line is the result.
case $THREAD_RUN_AGENT in
mail)
  if [ -e down ]; then # the server for mails says: later
    echo '{"delay":"100ms"}'
    exit 75
  fi
  cat >>sent.txt # in earnest: sendmail, or curl
  ;;
report)
  echo "{\"mails\":$(wc -l <sent.txt)}"
  ;;
refund)
  refund=$(cat)
  thread run wait --for approval --ask "Refund $refund?" --timeout 7d >answer.txt || exit
  # Once, also when this process is killed and the job is started again.
  thread run do --key pay --once -- sh -c 'echo "$1 with key $THREAD_STEP_KEY" >>refunds.txt' sh "$refund"
  ;;
esac
