#!/usr/bin/env bash
# Compiles a program and runs it:
#
#   check.sh runs PROGRAM COMPILER ARGUMENT...             it must return 0
#   check.sh aborts MESSAGE PROGRAM COMPILER ARGUMENT...   it must print MESSAGE on stderr and abort
set -uo pipefail
mode=$1
shift
if [ "$mode" = aborts ]; then
  message=$1
  shift
fi
program=$1
shift

"$@" -o "$program" || exit 1
[ "$mode" = aborts ] || exec "$program"

ulimit -c 0
"$program" 2>"$program.stderr"
status=$?
cat "$program.stderr"
if [ $status -ne 134 ]; then # 128 + SIGABRT
  echo "exit status $status, expected an abort"
  exit 1
fi
grep -qF "$message" "$program.stderr" || {
  echo "expected on stderr: $message"
  exit 1
}
