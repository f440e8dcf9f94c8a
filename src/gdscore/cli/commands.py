"""The commands and what they have in common.

Requirements met here:

- what is imported here is all that ``gdscore --help`` costs: every command imports what it needs when it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from gdscore import __version__
from gdscore.cli.demo import demo
from gdscore.cli.estimate import estimate
from gdscore.cli.extract import extract
from gdscore.cli.fit import fit
from gdscore.cli.guard import Commands
from gdscore.cli.methods import methods
from gdscore.cli.options import Debug, examples, flowing
from gdscore.cli.score import score

__all__ = ["app"]

app = typer.Typer(
    name="gdscore",
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog=examples(
        "gdscore demo",
        "gdscore fit val.npz --head head.npz -o m.gdscore    # labelled, once",
        "gdscore estimate m.gdscore new.parquet              # unlabelled",
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
        "gdscore fit val.npz --head head.npz -o m.gdscore",
        "gdscore fit val.npz --shifted-sets shifted -o m.gdscore --level 0.8",
    ),
    estimate: (
        "gdscore estimate m.gdscore new.parquet",
        "gdscore estimate m.gdscore new.npz other.npz --html report.html",
        "gdscore estimate m.gdscore logs --min-accuracy 0.2 --json out.json",
        "gdscore estimate m.gdscore logs --min-accuracy 0.2 --alarm-on high",
    ),
    extract: (
        "gdscore extract network:load photos -o val.npz --head head.npz",
        "gdscore extract network:load photos -o new.parquet --batch-size 32",
    ),
    methods: ("gdscore methods", "gdscore methods gdscore"),
    demo: ("gdscore demo", "gdscore demo --output digits"),
}
for _command, _examples in _COMMANDS.items():
    app.command(help=flowing(_command.__doc__ or ""), epilog=examples(*_examples))(_command)
