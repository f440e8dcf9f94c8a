"""Options that several commands have, and the wording of examples."""

from __future__ import annotations

import inspect
from typing import Annotated, TypeAlias

import typer

__all__ = ["Debug", "JsonPath", "Quiet", "examples", "flowing"]

Debug: TypeAlias = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors; no progress bar.")]
JsonPath: TypeAlias = Annotated[
    str | None,
    typer.Option("--json", metavar="PATH", help="Write everything as JSON; - for standard output instead of a table."),
]


def examples(*lines: str) -> str:
    """Text below the help of a command; a test runs what follows each ``$``."""
    return "\n\n".join(["Examples:", *(f"$ {line}" for line in lines)])


def flowing(text: str) -> str:
    """Text of a docstring with one line for each paragraph, which typer wraps as wide as the terminal is."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in inspect.cleandoc(text).split("\n\n"))
