"""Whatever goes wrong ends in one line on standard error and an exit code.

====  =======================================================================
code  meaning
====  =======================================================================
0     done
1     a bug: an error that gdscore does not know
2     something given cannot be used; the line says what to do
3     an estimate is below ``--min-accuracy``
130   interrupted with Ctrl-C
143   terminated (``SIGTERM``)
====  =======================================================================
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Any

from typer.core import TyperGroup

from gdscore.cli.console import errors
from gdscore.errors import GdscoreError

__all__ = ["BELOW", "Commands"]

BUG, UNUSABLE, BELOW, INTERRUPTED = 1, 2, 3, 130


class _Interrupted(Exception):  # noqa: N818  (no error: somebody pressed Ctrl-C)
    """Ctrl-C, under a name that typer leaves alone."""


class Commands(TyperGroup):
    """Group of commands that words every exception; a traceback is shown with ``--debug`` only."""

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise _Interrupted from error

    def main(self, args: Sequence[str] | None = None, *more: Any, **extra: Any) -> Any:
        """Run the command line and leave the process with its exit code."""
        args = list(sys.argv[1:] if args is None else args)
        try:
            # Typer returns the code of `typer.Exit` where it does not end the process itself.
            code = super().main(args, *more, **extra | {"standalone_mode": False, "obj": args}) or 0
        except Exception as error:
            if "--debug" in args:
                traceback.print_exc()
            line, code = _worded(error)
            errors().print(f"[bold red]gdscore:[/] {_literal(line)}", soft_wrap=True)
        sys.exit(code)


def _worded(error: Exception) -> tuple[str, int]:
    if isinstance(error, _Interrupted):
        return "interrupted: what was not finished is not written", INTERRUPTED
    if hasattr(error, "format_message"):  # the usage errors of typer, whose module changes with its version
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "gdscore"
        return f"{error.format_message().rstrip('.')}: see '{path} --help'", UNUSABLE
    if isinstance(error, GdscoreError):
        return str(error), UNUSABLE
    if isinstance(error, OSError):
        named = f" {error.filename!r}" if error.filename else ""
        return f"the system refused{named}: {error.strerror or error}", UNUSABLE
    if isinstance(error, MemoryError):
        return "there is not enough memory: give smaller files, or Parquet, which is read piece by piece", UNUSABLE
    return f"{type(error).__name__}: {error}: this should not happen, --debug shows where", BUG


def _literal(line: str) -> str:
    from rich.markup import escape

    return escape(" ".join(line.split()))
