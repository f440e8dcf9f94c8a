"""A progress bar on standard error, for people only."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

__all__ = ["Bar", "progress_bar"]


class Bar:
    """Function that takes the rows (or other units) done, and the total where it becomes known later."""

    def __init__(self, update: Callable[..., Any] | None = None) -> None:
        self._update = update

    @property
    def shown(self) -> bool:
        """Whether anybody sees it."""
        return self._update is not None

    def __call__(self, done: int) -> None:
        """Move on by so many."""
        if self._update is not None:
            self._update(advance=done)

    def set_total(self, total: int) -> None:
        """Tell how many there are."""
        if self._update is not None:
            self._update(total=total)


@contextlib.contextmanager
def progress_bar(total: int | None, show: bool | None, unit: str = "rows") -> Iterator[Bar]:
    """Give a function that takes the rows (or other units) done.

    ``show=None`` shows the bar where a terminal is attached; ``total=None`` means that the number is not known.
    """
    if show is None:
        show = sys.stderr is not None and sys.stderr.isatty()
    if not show:
        yield Bar()
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
        yield Bar(partial(bar.update, task))
