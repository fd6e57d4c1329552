# Sends a page of lines, and acks it: the last thing that it does. @dir and @thread are filled in by run.sh.
set -eu
sed 's/.*"content":\("[^"]*"\).*/\1/' @dir/page >> @dir/report.txt # mail, curl, psql, …
@thread ack --thread @dir/pipe --consumer nightly --delivery "$(sed -n '1s/.*"delivery":\([0-9]*\).*/\1/p' @dir/page)" >/dev/null
