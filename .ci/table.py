"""What ran and what was skipped, and why; exits with 1 where something was skipped that must run.

    python .ci/table.py OUTCOMES LOG ...

OUTCOMES: lines NAME, ran or skipped, and a note, between tabs (`outcomes.sh`). LOG: output of `pytest -rs`, whose
skipped tests are counted by reason.
"""

import re
import sys
from collections import Counter
from pathlib import Path

REQUIRED = [f"deploy: {way}" for way in ("cluster", "local", "s3", "ssh-tls", "streams")]
SKIPPED = re.compile(r"SKIPPED \[(\d+)\] \S+?(?::\d+)?: (.*)")


def reasons(logs) -> Counter:
    """How many tests were skipped, by reason."""
    found = Counter()
    for log in logs:
        for line in log.splitlines():
            if match := SKIPPED.fullmatch(line):
                found[match[2]] += int(match[1])
    return found


def table(outcomes, skipped) -> list[str]:
    """Lines, in the order of the outcomes; then skipped tests, those of the commonest reason first."""
    rows = [*outcomes, *(("tests", f"{count} skipped", reason) for reason, count in skipped.most_common())]
    widths = [max(len(row[k]) for row in rows) for k in range(2)] if rows else []
    return ["  ".join([*map(str.ljust, row, widths), row[2]]).rstrip() for row in rows]


def lacking(outcomes) -> list[str]:
    """What must run and did not."""
    ran = {name for name, outcome, _ in outcomes if outcome == "ran"}
    return [name for name in REQUIRED if name not in ran]


def main(outcomes, *logs) -> int:
    found = [tuple(line.split("\t")) for line in Path(outcomes).read_text().splitlines()]
    print(*table(found, reasons(Path(log).read_text() for log in logs)), sep="\n")
    for name in (missed := lacking(found)):
        print(f"{name}: expected to run, it did not; install what is missing", file=sys.stderr)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
