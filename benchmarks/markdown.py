"""Tables as Markdown, and putting them between the markers of a page."""

import inspect
import re

__all__ = ["attributes_of", "fill", "filled", "markdown"]


def attributes_of(owner):
    """Description of each attribute in the docstring of a class or an object of it."""
    described = re.findall(r"^([\w, ]+) : [\w ]+\n((?:    .+\n?)+)", inspect.getdoc(owner), re.MULTILINE)
    return {name: " ".join(text.split()) for names, text in described for name in names.split(", ")}


def markdown(heads, rows):
    """A table of texts."""
    lines = (f"| {' | '.join(cells)} |" for cells in (heads, *rows))
    return "\n".join([next(lines), "|---" * len(heads) + "|", *lines])


def filled(text, tables):
    """Text with each table between its markers ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->``, on lines or within one."""
    for name, table in tables.items():
        marks = rf"(<!-- {re.escape(name)}:begin -->)(\n?).*?(<!-- {re.escape(name)}:end -->)"
        text = re.sub(marks, lambda m, table=table: f"{m[1]}{m[2]}{table}{m[2]}{m[3]}", text, flags=re.DOTALL)
    return text


def fill(page, tables):
    """Put tables between their markers in a page."""
    page.write_text(filled(page.read_text(), tables))
