"""The command `gdscore`: a file for each command, and `main`, which the shell runs.

Requirements met here:

- the commands are imported by `main` and not before it, so that Ctrl-C is one line from the start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gdscore.cli.commands import app

__all__ = ["INTERRUPTED", "app", "main"]

INTERRUPTED = "interrupted: what was not finished is not written"


def main() -> None:
    """Run the command line of this process."""
    import sys

    try:
        import signal

        # An exception, unlike the signal's own way, takes unfinished files away.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        from gdscore.cli.commands import app

        app(prog_name="gdscore")
    except KeyboardInterrupt:
        sys.stderr.write(f"gdscore: {INTERRUPTED}\n")
        sys.exit(130)


def __getattr__(name: str) -> Any:
    if name == "app":
        from gdscore.cli.commands import app

        return app
    raise AttributeError(f"module 'gdscore.cli' has no attribute {name!r}")
