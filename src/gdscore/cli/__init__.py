"""The command `gdscore`: a file for each command, and `main`, which the shell runs.

Requirements met here:

- the commands are imported by `main` and not before it, so that Ctrl-C ends in one line from the start;
- what a stream cannot encode is written as an escape.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["INTERRUPTED", "main"]

INTERRUPTED = "interrupted: what was not finished is not written"


def main() -> None:
    """Run the command line of this process."""
    ended: list[int] = []
    try:
        import signal

        def end(*_: Any) -> None:
            ended.append(128 + signal.SIGTERM)
            sys.exit(ended[0])

        # An exception, unlike the signal's own way, takes unfinished files away.
        signal.signal(signal.SIGTERM, end)
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.reconfigure(errors="backslashreplace")
        from gdscore.cli.commands import app

        app(prog_name="gdscore")
    except KeyboardInterrupt:
        sys.stderr.write(f"gdscore: {INTERRUPTED}\n")
        sys.exit(130)
    except SystemExit as error:
        if ended and error.code != ended[0]:  # Ray ends with a code of its own where a handler ends its waiting
            raise SystemExit(ended[0]) from None
        raise
