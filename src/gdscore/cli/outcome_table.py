"""Estimates as a table, and below it what should be known about them."""

from __future__ import annotations

from collections.abc import Sequence

from gdscore.cli.console import once, percent, results, short_percent
from gdscore.cli.outcomes import Outcome, Threshold, reasons
from gdscore.cli.targets import in_words

__all__ = ["show"]


def show(outcomes: Sequence[Outcome], threshold: Threshold | None) -> None:
    """Print to standard output."""
    from rich.markup import escape
    from rich.table import Table

    console = results()
    estimates = [o.estimate for o in outcomes if o.estimate is not None]
    table = Table("target")
    dates = [in_words(o.data.when) if o.data.when else "" for o in outcomes]
    dated = all(dates) and any(o.data.name != date for o, date in zip(outcomes, dates, strict=True))
    if dated:
        table.add_column("date")
    levels = " / ".join(short_percent(level) for level in sorted({e.level for e in estimates}))
    for title in ("rows", "accuracy", f"{levels} interval".strip(), "reference"):
        table.add_column(title, justify="right")
    if threshold is not None:
        table.add_column(threshold.question)
    for outcome, date in zip(outcomes, dates, strict=True):
        table.add_row(escape(outcome.data.name), *([date] if dated else []), *_cells(outcome, threshold))
    console.print(table)
    if len(outcomes) == 1 and estimates[0].lookalikes:
        alike = [f"{a.family.replace('+', ' + ')} ({percent(a.accuracy)})" for a in estimates[0].lookalikes[:3]]
        console.print(f"Most like these calibration sets, and the accuracy there: {', '.join(alike)}", markup=False)
    for line in reasons(outcomes):
        console.print(f"not estimated: {line}", style="red", markup=False)
    for line in once([(o.data.name, o.estimate.warnings) for o in outcomes if o.estimate is not None]):
        console.print(f"careful: {line}", style="yellow", markup=False)


def _cells(outcome: Outcome, threshold: Threshold | None) -> list[str]:
    e = outcome.estimate
    if e is None:
        return ["", "[bold red]not estimated[/]"]
    cells = [
        f"{e.n:,}",
        f"[bold]{percent(e.accuracy)}[/]",
        f"{percent(e.low)} to {percent(e.high)}",
        percent(e.reference_accuracy),
    ]
    if threshold is not None:
        cells.append("[bold red]below[/]" if threshold.missed_by(e) else "[green]yes[/]")
    return cells
