"""What all commands share: options, exit codes, and printing: results to standard output, the rest to standard error.

Requirements met here:

- colour and bars only where a terminal is attached, and no colour under ``NO_COLOR``;
- into a pipe or a file nothing is wrapped or cut, so that a line stays a line;
- whatever files, classes and families are called, their names cannot steer a terminal: all text passes `printable`;
- rich is imported when something is printed.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from gdscore._format import printable
from gdscore.errors import GdscoreError, GdscoreWarning

if TYPE_CHECKING:
    from rich.console import Console

Debug: TypeAlias = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors; no progress bar.")]
JsonPath: TypeAlias = Annotated[
    str | None,
    typer.Option("--json", metavar="PATH", help="Write everything as JSON; - for standard output instead of a table."),
]

HtmlPath: TypeAlias = Annotated[Path | None, typer.Option(metavar="PATH", help="Write a report: one .html file.")]
ClassMix: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="MIX",
        help="What is known of the targets' classes: unknown, stable (as in the reference), estimated (only their "
        "mix has moved), shares such as 0.2,0.8, or shares and ranges of some classes such as fraud=0.01:0.03; by "
        "default what the estimator was fitted with.",
    ),
]


def read_class_mix(text: str | None) -> Any:
    """Value of ``--class-mix`` as `AccuracyEstimator` takes it."""
    if text is None or not {",", "="} & set(text):
        return text
    try:
        if "=" not in text:
            return [float(share) for share in text.split(",")]
        shares: dict[str, float | tuple[float, float]] = {}
        for part in text.split(","):
            name, _, value = part.rpartition("=")
            low, _, high = value.partition(":")
            shares[name.strip()] = (float(low), float(high)) if high else float(low)
        return shares
    except ValueError as error:
        raise GdscoreError(
            f"Expected shares such as 0.2,0.8 or fraud=0.01:0.03 as --class-mix, but got {text!r}"
        ) from error


_UNWRAPPED = 10_000
Cell: TypeAlias = str | tuple[str, str]
"""Text of a table, or text and its style."""


class ExitCode(IntEnum):
    """What the process ends with; 143 where it was terminated (``SIGTERM``)."""

    DONE = 0  # where an alarm was asked for, all is fine
    FAILED = 1  # a target failed, or the webhook did; the line on standard error says why. Also a bug
    USAGE = 2  # the command cannot be used like that; nothing was written
    ALARM = 3
    NOT_ENOUGH_DATA = 4
    INTERRUPTED = 130  # with Ctrl-C
    UNREAD = 141  # the reader of a pipe went away, as in ``gdscore methods | head -1``; nothing is printed


_PANEL = "Many machines"


Engine: TypeAlias = Literal["local", "ray"]
OnError: TypeAlias = Literal["raise", "skip"]

EngineOption: TypeAlias = Annotated[
    Engine, typer.Option(help="Work in this process, or on a Ray cluster.", rich_help_panel=_PANEL)
]
Address: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Address of the cluster: auto, host:port or ray://…; by default one is started on this machine.",
        rich_help_panel=_PANEL,
    ),
]
OnErrorOption: TypeAlias = Annotated[
    OnError | None,
    typer.Option(
        help="With --engine ray, a file that cannot be read ends the work (default) or is left out.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]


def check_options(engine: Engine, address: str | None, on_error: OnError | None) -> None:
    """Refuse options of a cluster without one, and connect where there is to be one."""
    if engine == "local":
        for name, value in (("--address", address), ("--on-error", on_error)):
            if value is not None:
                raise GdscoreError(
                    f"Expected --engine ray with {name}, but it is not given: add it, or leave {name} out"
                )
        return
    from gdscore import distributed

    # Tasks that are given up fail later, and Ray would tell of each.
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    # A cluster that cannot be reached is wrong usage, not the failure of one target.
    distributed.connect(address)


def _console(error: bool = False) -> Console:
    from rich.console import Console

    stream = sys.stderr if error else sys.stdout
    return Console(stderr=error, width=None if stream.isatty() else _UNWRAPPED, highlight=False, emoji=False)


def show(text: str, style: str | None = None) -> None:
    """Print to standard output."""
    _console().print(printable(text), style=style, markup=False)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, left: Sequence[int] = (0,)) -> None:
    """Print a table to standard output; columns in ``left`` hold text, which may be wrapped, the others numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for i, column in enumerate(columns):
        justify: Literal["left", "right"] = "left" if i in left else "right"
        table.add_column(Text(printable(column)), justify=justify, no_wrap=i not in left, overflow="fold")
    for row in rows:
        cells = ((cell, "") if isinstance(cell, str) else cell for cell in row)
        table.add_row(*(Text(printable(text).replace("\n", "\\n"), style) for text, style in cells))
    _console().print(table)


def complain(line: str) -> None:
    """Print to standard error what is wrong, in one line."""
    from rich.text import Text

    line = printable(" ".join(line.split()))
    _console(error=True).print(Text.assemble(("gdscore:", "bold red"), f" {line}"), soft_wrap=True)


def show_traceback() -> None:
    """Print to standard error where the current exception comes from."""
    sys.stderr.write(printable(traceback.format_exc()))


@contextlib.contextmanager
def working(what: str, quiet: bool) -> Iterator[None]:
    """Show that something is going on whose length is not known."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    with _console(error=True).status(what):
        yield


@contextlib.contextmanager
def collect_warnings() -> Iterator[list[str]]:
    """Collect the warnings of gdscore as sentences; those of others pass."""
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GdscoreWarning)
        yield messages
    for warning in caught:
        if issubclass(warning.category, GdscoreWarning):
            messages.append(str(warning.message))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def group_messages(messages: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Each message once, with the targets it concerns where these are not all.

    Examples
    --------
    >>> group_messages([("a", ["few rows", "odd"]), ("b", ["few rows"])])
    ['few rows', 'odd (a)']
    """
    concerned: dict[str, list[str]] = {}
    for name, lines in messages:
        for line in lines:
            concerned.setdefault(line, []).append(name)
    return [
        line if len(names) == len(messages) else f"{line} ({', '.join(names)})" for line, names in concerned.items()
    ]


def describe_error(error: BaseException) -> tuple[str, ExitCode]:
    """What is wrong in one sentence, and the exit code of a command that ends with it."""
    if hasattr(error, "format_message"):  # the usage errors of typer, whose module changes with its version
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "gdscore"
        return f"{error.format_message().rstrip('.')}: see '{path} --help'", ExitCode.USAGE
    if isinstance(error, GdscoreError):
        return str(error), ExitCode.USAGE if getattr(error, "is_usage", True) else ExitCode.FAILED
    if isinstance(error, OSError):
        named = f" {error.filename!r}" if error.filename else ""
        return f"the system refused{named}: {error.strerror or error}", ExitCode.USAGE
    if isinstance(error, MemoryError):
        return "there is not enough memory: give smaller files, or Parquet, which is read in pieces", ExitCode.USAGE
    return f"{type(error).__name__}: {error}: this is a bug, --debug shows where", ExitCode.FAILED


def examples(*lines: str) -> str:
    """Text below the help of a command; a test runs what follows each ``$``."""
    return "\n\n".join(["Examples:", *(f"$ {line}" for line in lines)])


def one_line_paragraphs(text: str) -> str:
    """Text of a docstring with one line for each paragraph, which typer wraps as wide as the terminal is."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in inspect.cleandoc(text).split("\n\n"))


def shared_options(
    into: str, options: Mapping[str, Any], make: Callable[[dict[str, Any]], Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command options that others have too, None where they are not given, made into one argument."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        kind = inspect.Parameter.KEYWORD_ONLY

        @functools.wraps(command)
        def with_options(**arguments: Any) -> None:
            shared = {name: arguments.pop(name) for name in options}
            command(**arguments, **{into: make(shared)})

        parameters = [
            *(p.replace(kind=kind) for name, p in signature.parameters.items() if name != into),
            *(inspect.Parameter(name, kind, default=None, annotation=option) for name, option in options.items()),
        ]
        with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
        return with_options

    return decorate
