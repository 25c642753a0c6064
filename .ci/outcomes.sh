# Sourced by `run`: what ran and what was skipped, a line for each in $scratch/outcomes, for `table.py`.

# outcome NAME ran|skipped NOTE
outcome() { printf '%s\t%s\t%s\n' "$@" >>"$scratch/outcomes"; }

# attempt NAME COMMAND ...: run a command that may exit with 77, which says that it was skipped; fail where it fails.
# Its lines "missing: ..." name what it did without, "skipped: ..." why it was skipped.
attempt() {
    local name=$1 code=0 without
    shift
    "$@" 2>&1 | tee "$scratch/attempt.log" || code=$?
    case $code in
        0)
            without=$(lines_of missing)
            outcome "$name" ran "${without:+without }$without"
            ;;
        77) outcome "$name" skipped "$(lines_of skipped)" ;;
        *) return "$code" ;;
    esac
}

# lines_of WORD: what follows the word, in all lines of the last attempt that begin with it.
lines_of() { sed -n "s/^$1: //p" "$scratch/attempt.log" | paste -sd '|' | sed 's/|/; /g'; }
