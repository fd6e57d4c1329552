#!/bin/sh
# setup.sh DIR: the thread of the shop.
set -eu
thread init "$1"
thread history limit --thread "$1" --agent mail --rate 100/1m # what the server for mails allows, with all workers
thread subscribe --thread "$1" --consumer nightly --type nightly --handler "./nightly.sh"
thread schedule add --thread "$1" --name nightly --when "55 23 * * *" --source shop --type nightly
