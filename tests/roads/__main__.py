"""Scores and estimates of every public road, before and after a change.

    python -m tests.roads compare                 # every entry that differs, with old and new values; status 1 if any
    python -m tests.roads compare --only scores fit ray   # some roads, also the optional one on Ray
    python -m tests.roads accept "image shifts/*" "JPEG by Pillow"   # note the new values as meant, with the reason
    python -m tests.roads record                  # record.json anew; not while a refactoring is under way

record.json holds the values of one commit and is not written again while code moves. What was changed on purpose is in
accepted.json with its reason, old and new value, and is compared with the new value from then on. Scores are compared
bit for bit, all other numbers to 1e-12, on the processor that the record names; elsewhere to 1e-6.
"""

import argparse
import sys

from tests.roads.compare import accept, differences, record
from tests.roads.road import OPTIONAL, ROADS


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["record", "compare", "accept"])
    parser.add_argument("pattern", nargs="?", help="of accept: entries, such as 'torch/*'")
    parser.add_argument("reason", nargs="?", help="of accept: why they changed")
    parser.add_argument("--only", nargs="+", choices=sorted(ROADS), metavar="ROAD", help=", ".join(ROADS))
    options = parser.parse_args()
    if options.command == "record":
        entries = record(options.only or list(ROADS))
        print(f"{entries} entries recorded")  # noqa: T201
        return 0
    if options.command == "accept" and not (options.pattern and options.reason):
        parser.error("accept needs a pattern and a reason")
    roads = options.only or [name for name in ROADS if name not in OPTIONAL]
    found = differences(roads)
    if options.command == "accept":
        print(f"{accept(found, options.pattern, options.reason)} entries accepted")  # noqa: T201
        return 0
    for line in found:
        print(line)  # noqa: T201
    failed = sum(not line.accepted for line in found)
    print(f"{len(roads)} roads: {failed} entries differ, {len(found) - failed} changed on purpose")  # noqa: T201
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
