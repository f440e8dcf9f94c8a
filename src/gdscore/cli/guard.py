"""Whatever goes wrong ends in one line on standard error and an exit code.

====  ==============================================================================================================
code  meaning
====  ==============================================================================================================
0     done
1     a bug: an error that gdscore does not know
2     something given cannot be used, or some targets are not estimated and none is below; the line says what to do
3     an estimate is below ``--min-accuracy``
130   interrupted with Ctrl-C
141   the reader of a pipe went away, as in ``gdscore methods | head -1``; nothing is said
143   terminated (``SIGTERM``)
====  ==============================================================================================================
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from typer.core import TyperGroup

from gdscore.cli import INTERRUPTED as INTERRUPTED_WORDS
from gdscore.cli.console import errors
from gdscore.errors import GdscoreError

__all__ = ["BELOW", "UNUSABLE", "Commands", "complain", "worded"]

BUG, UNUSABLE, BELOW, INTERRUPTED, UNREAD = 1, 2, 3, 130, 141


class _Interrupted(Exception):  # noqa: N818  (no error: somebody pressed Ctrl-C)
    """Ctrl-C, under a name that typer leaves alone."""


class Commands(TyperGroup):
    """Group of commands that words every exception; a traceback is shown with ``--debug`` only."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Read the command line; help is shown here."""
        with _named():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        with _named():
            return super().invoke(ctx)

    def main(self, args: Sequence[str] | None = None, *more: Any, **extra: Any) -> Any:
        """Run the command line and leave the process with its exit code."""
        args = list(sys.argv[1:] if args is None else args)
        try:
            code = self._code(args, *more, **extra | {"standalone_mode": False, "obj": args})
        except (BrokenPipeError, SystemExit) as error:
            # Typer and rich end the process themselves where a pipe breaks, with the code of a bug.
            if not isinstance(error, BrokenPipeError) and not isinstance(error.__context__, BrokenPipeError):
                raise
            code = UNREAD
            _drop_output()
        sys.exit(code)

    def _code(self, args: list[str], *more: Any, **extra: Any) -> int:
        try:
            # Typer returns the code of `typer.Exit` where it does not end the process itself.
            return super().main(args, *more, **extra) or 0
        except BrokenPipeError:
            raise
        except Exception as error:
            if "--debug" in args:
                traceback.print_exc()
            line, code = worded(error)
            complain(line)
            return code


def complain(line: str) -> None:
    """Say on standard error what is wrong, in one line."""
    from rich.markup import escape

    errors().print(f"[bold red]gdscore:[/] {escape(' '.join(line.split()))}", soft_wrap=True)


def worded(error: Exception) -> tuple[str, int]:
    """What is wrong, in words, and its exit code."""
    if isinstance(error, _Interrupted):
        return INTERRUPTED_WORDS, INTERRUPTED
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


@contextlib.contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as error:
        raise _Interrupted from error


def _drop_output() -> None:
    """Let what is still held for the broken pipe go nowhere, as the interpreter would complain of it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            os.dup2(nowhere, stream.fileno())
