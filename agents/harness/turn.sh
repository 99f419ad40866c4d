#!/bin/sh
# turn.sh FOLDER SECONDS GRACE COMMAND...: runs one turn, enforces its limit and records its begin and its end.
#
# It needs nobody: whoever started it may die. All of its names begin with `_`, so that nothing of the agent's own
# environment is overwritten, and its tools come from the system's path, not from the agent's.
_run=$1 _limit=$2 _grace=$3
shift 3
read -r _me < /proc/self/stat
read -r _t0 _rest < /proc/uptime

set -C # `start` is created exclusively: a folder starts once
printf '%s\n' "$_me" > "$_run/start" || exit 75
set +C
exec < "$_run/in" || exit 75    # gone when somebody has taken the turn over before `start` was written
printf '%64s' '' > "$_run/exit" # room for the record, so that a disk that fills up cannot lose it

# In a subshell, which costs no process, or the shell would write its own "Killed" to where the command writes.
(command -p timeout -k "$_grace" "$_limit" "$@" >> "$_run/out" 2>> "$_run/err")
_rc=$?
read -r _t1 _rest < /proc/uptime
_id=$TRINITY_EXECUTION_ID
unset TRINITY_EXECUTION_ID # so that grep and sleep do not carry the mark

# Every process with the mark or of this session, but ourselves. A process of the session may have cleared its environment.
_left() {
    _pids=
    for _f in $(command -p grep -lsazxF "TRINITY_EXECUTION_ID=$_id" /proc/[0-9]*/environ); do
        _f=${_f#/proc/} _f=${_f%/environ}
        [ "$_f" = $$ ] || _pids="$_pids $_f"
    done
    for _f in /proc/[0-9]*/stat; do
        read -r _line < "$_f" || continue
        set -- ${_line##*) } # state, parent, group, session
        _f=${_f#/proc/} _f=${_f%/stat}
        [ "$4" != $$ ] || [ "$1" = Z ] || [ "$_f" = $$ ] || _pids="$_pids $_f"
    done
    [ -n "$_pids" ]
}

# `timeout` has ended its own process group; the rest is left only where the limit has passed.
if [ $_rc -eq 124 ] || [ $_rc -eq 137 ]; then
    if [ "${_t1%.*}" -ge $((${_t0%.*} + _limit)) ] && _left; then
        kill -TERM $_pids
        kill -CONT $_pids
        _n=$((_grace * 5))
        while [ $_n -gt 0 ] && _left; do
            command -p sleep 0.2
            _n=$((_n - 1))
        done
        _n=5
        while [ $_n -gt 0 ] && _left; do
            kill -KILL $_pids
            _n=$((_n - 1))
        done
    fi
fi 2> /dev/null

printf '%s\n' "$_rc $_t0 $_t1 $_limit" 1<> "$_run/exit" # one write in place; valid only with its newline
