"""A progress bar on standard error, for people only."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

__all__ = ["progress_bar"]


@contextlib.contextmanager
def progress_bar(total: int | None, show: bool | None, unit: str = "rows") -> Iterator[Callable[[int], None]]:
    """Give a function that takes the rows (or other units) done.

    ``show=None`` shows the bar where a terminal is attached; ``total=None`` means that the number is not known.
    """
    if show is None:
        show = sys.stderr is not None and sys.stderr.isatty()
    if not show:
        yield lambda rows: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    # Streams of the process stay as they are: the rows go to code that may itself print.
    bar = Progress(
        TextColumn(unit),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True, force_terminal=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with bar:
        task = bar.add_task(unit, total=total)
        yield lambda rows: bar.advance(task, rows)
