"""The commands, and what happens when one of them fails: one line on standard error and an exit code.

Requirements met here:

- what is imported here is all that ``gdscore --help`` costs: every command imports what it needs when it runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gdscore import __version__
from gdscore.cli import INTERRUPTED
from gdscore.cli.check import check
from gdscore.cli.console import Debug, ExitCode, complain, describe_error, examples, one_line_paragraphs, show_traceback
from gdscore.cli.demo import demo
from gdscore.cli.estimate import estimate
from gdscore.cli.extract import extract
from gdscore.cli.fit import fit
from gdscore.cli.label import label
from gdscore.cli.monitor import monitor
from gdscore.cli.score import methods, score
from gdscore.cli.track import track


class Commands(TyperGroup):
    """Group of commands that ends every exception in one line; a traceback is shown with ``--debug`` only."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **extra: Any) -> Any:
        """Run the command line and leave the process with its exit code."""
        args = list(sys.argv[1:] if args is None else args)
        try:
            code = self._code(args, *more, **extra | {"standalone_mode": False, "obj": args})
        except (BrokenPipeError, SystemExit) as error:
            # Typer and rich end the process themselves where a pipe breaks, with the code of a failure.
            if not isinstance(error, BrokenPipeError) and not isinstance(error.__context__, BrokenPipeError):
                raise
            code = ExitCode.UNREAD
            _drop_output()
        sys.exit(int(code))

    def _code(self, args: list[str], *more: Any, **extra: Any) -> int:
        try:
            # Typer returns the code of `typer.Exit` where it does not end the process itself.
            code = int(super().main(args, *more, **extra) or 0)
            sys.stdout.flush()  # a pipe that broke is an error of this command, not of the interpreter's end
        except BrokenPipeError:
            raise
        except typer.Abort:  # Ctrl-C in older versions of typer, which newer ones answer with a code
            code = ExitCode.INTERRUPTED
        except Exception as error:
            if "--debug" in args:
                show_traceback()
            line, code = describe_error(error)
            complain(line)
        if code == ExitCode.INTERRUPTED:
            complain(INTERRUPTED)
        return code


def _drop_output() -> None:
    """Discard what a stream holds and cannot write, as the interpreter would complain of it at its end."""
    for stream in filter(None, (sys.__stdout__, sys.__stderr__)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


app = typer.Typer(
    name="gdscore",
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog=examples(
        "gdscore demo",
        "gdscore fit val.npz --shifted-sets shifted -o m.gdscore    # labelled, once",
        "gdscore estimate m.gdscore new.parquet                     # unlabelled",
    ),
)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"gdscore {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Debug = False,
) -> None:
    """How accurate is your classifier on data without labels?"""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


_COMMANDS: dict[Callable[..., None], tuple[str, ...]] = {
    score: (
        "gdscore score new.npz",
        "gdscore score new.parquet other.npz --reference val.npz",
        "gdscore score new.npz --reference val.npz --scores gdscore,atc --json -",
    ),
    fit: (
        "gdscore fit val.npz -o m.gdscore",
        "gdscore fit val.npz --shifted-sets shifted -o m.gdscore --level 0.8",
    ),
    estimate: (
        "gdscore estimate m.gdscore new.parquet",
        "gdscore estimate m.gdscore new.npz other.npz --html report.html",
        "gdscore estimate m.gdscore logs --min-accuracy 0.2 --json out.json",
        "gdscore estimate new.npz --method cot --reference val.npz",
    ),
    track: (
        "gdscore track m.gdscore outputs.parquet labels.csv --time ts --every 1w",
        "gdscore track m.gdscore logs labels.csv -o windows.csv --picture tracking.svg --max-drop 0.05",
    ),
    extract: (
        "gdscore extract network:load photos -o val.npz",
        "gdscore extract network:load photos -o new.parquet --batch-size 32",
    ),
    check: (
        "gdscore check network:load train new --validation val",
        "gdscore check network:load train new --calibration check.json --rows right.csv --device cuda",
    ),
    methods: ("gdscore methods", "gdscore methods gdscore"),
    demo: ("gdscore demo", "gdscore demo --output digits"),
}
for _command, _examples in _COMMANDS.items():
    app.command(help=one_line_paragraphs(_command.__doc__ or ""), epilog=examples(*_examples))(_command)
app.add_typer(label)
app.add_typer(monitor, name="monitor")
