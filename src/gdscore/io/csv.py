"""Rows of a text file with separated columns (CSV), streamed in constant memory.

Arrow's streaming reader is used where pyarrow is installed, Python's own, which is slower, elsewhere. Both read an
empty cell as missing, columns of numbers as float64 and all others as text.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore.errors import GdscoreError
from gdscore.files import Limits, path_errors
from gdscore.io.arrow import Block, RecordBatchReader, decoding, guarded, open_file, rebatched
from gdscore.io.columns import Chosen, ColumnType, Place, missing, to_text

_PIECE = 1 << 20
"""Bytes of text that are read at a time, more where there are many columns; Arrow reads several pieces ahead."""
_CELL = 64
"""Bytes of a cell for which a piece has room in all columns of a row."""
_HEADER = 1 << 20
_PLAIN_ROWS = 4096
_DELIMITERS = ",;\t|"


class CsvTable:
    """Columns of a CSV file with a header."""

    class_names: tuple[str, ...] | None = None
    threshold: float | None = None

    def __init__(self, path: Path, header: str, limits: Limits) -> None:
        self.path, self._limits = path, limits
        outside_quotes = re.sub(r'"[^"]*"', "", header)
        self._delimiter = max(_DELIMITERS, key=lambda sign: (outside_quotes.count(sign), -_DELIMITERS.index(sign)))
        self.names = next(csv.reader(io.StringIO(header), delimiter=self._delimiter, strict=True))
        self._piece = max(_PIECE, _CELL * len(self.names))

    def describe(self, name: str) -> ColumnType:
        """Text, which is read as what it is used for."""
        return ColumnType("csv", 0, "text")

    def count_rows(self, chosen: Chosen) -> None:
        """Not known before the file is read."""

    def blocks(self, chosen: Chosen, batch_rows: int | None) -> Iterator[Block]:
        """Rows in order."""
        try:
            import pyarrow as pa
        except ImportError:
            return rebatched(self._plain_pieces(chosen), batch_rows)
        return rebatched(guarded(self._arrow_pieces(chosen, pa), self._wording), batch_rows)

    # -- Arrow ------------------------------------------------------------------------------------------------

    def _arrow_pieces(self, chosen: Chosen, pa: Any) -> Iterator[Block]:
        from pyarrow import csv as arrow_csv

        reader = RecordBatchReader(self.path, chosen.names, self._limits, pa)
        with open_file(self.path, pa) as handle:
            batches = arrow_csv.open_csv(
                handle,
                read_options=arrow_csv.ReadOptions(block_size=self._piece, use_threads=False),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self._delimiter,
                    newlines_in_values=True,
                    # An empty line is a missing value where there is one column.
                    ignore_empty_lines=len(self.names) > 1,
                ),
                convert_options=arrow_csv.ConvertOptions(
                    include_columns=chosen.names,
                    column_types={n: pa.float64() if n in chosen.numeric else pa.string() for n in chosen.names},
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
            rows = 0
            for batch in batches:
                rows += batch.num_rows
                yield from reader.blocks(batch)
        quotes, lines = self._quotes_and_lines()
        if quotes % 2 or (quotes and lines > rows + 1):
            # Of a quotation mark that is never closed Arrow makes one cell of the rows up to the next, and is silent.
            for _ in self._plain_pieces(Chosen({}, None, None, None, (), None)):
                pass

    def _quotes_and_lines(self) -> tuple[int, int]:
        """Quotation marks, and lines that end in any of the three ways or with the file."""
        quotes, lines, last = 0, 0, b""
        with self.path.open("rb") as file:
            for piece in iter(lambda: file.read(_PIECE), b""):
                quotes += piece.count(b'"')
                # A line break that is cut in two is counted with its first half.
                breaks = piece.count(b"\n") + piece.count(b"\r") - piece.count(b"\r\n")
                lines += breaks - (last == b"\r" and piece.startswith(b"\n"))
                last = piece[-1:]
        return quotes, lines + (last not in (b"\n", b"\r"))

    @contextlib.contextmanager
    def _wording(self) -> Iterator[None]:
        """Give Arrow's messages as ours; its rows are numbered from 1 and count the header."""
        where = repr(os.fspath(self.path))
        try:
            with decoding(self.path, "a CSV file in UTF-8"):
                yield
        except GdscoreError as error:
            message = str(error.__cause__ or "")
            row = re.search(r"Row #(\d+)", message)
            place = f"row {int(row[1]) - 2} of {where}" if row else where
            value = re.search(r"CSV conversion error to double: invalid value '(.*)'", message, re.DOTALL)
            column = re.search(r"In CSV column #(\d+)", message)
            wrong = re.search(r"Expected (\d+) columns, got (\d+)", message)
            if value and column:
                raise not_a_number(self.names[int(column[1])], value[1], place) from error
            if wrong:
                raise ragged(int(wrong[1]), int(wrong[2]), place) from error
            if "straddling" in message:
                raise GdscoreError(
                    f"Expected rows of at most {self._piece:,} bytes in {where}, but one is longer: a quotation "
                    "mark may be missing"
                ) from error
            raise

    # -- Python -----------------------------------------------------------------------------------------------

    def _plain_pieces(self, chosen: Chosen) -> Iterator[Block]:
        where = repr(os.fspath(self.path))
        wanted = set(chosen.names)
        position = {name: at for at, name in enumerate(self.names) if name in wanted}
        start = -1
        with contextlib.ExitStack() as stack:
            with path_errors(self.path):
                file = stack.enter_context(self.path.open(encoding="utf-8-sig", newline=""))
            rows = csv.reader(file, delimiter=self._delimiter, strict=True)
            while True:
                held: list[list[str]] = []
                try:
                    if start < 0:
                        next(rows)
                        start = 0
                    while len(held) < _PLAIN_ROWS and (row := next(rows, None)) is not None:
                        if row or len(self.names) == 1:
                            held.append(row or [""])
                # Undecodable bytes are a ValueError.
                except (csv.Error, ValueError, OSError) as error:
                    raise GdscoreError(
                        f"Expected {where} to be a CSV file in UTF-8, but it is damaged ({error}): write the file again"
                    ) from error
                if not held:
                    return
                place = Place(where, start)
                for number, row in enumerate(held):
                    if len(row) != len(self.names):
                        raise ragged(len(self.names), len(row), place.row(number))
                yield {
                    name: self._column(name, [row[at] for row in held], name in chosen.numeric, place)
                    for name, at in position.items()
                }
                start += len(held)

    def _column(self, name: str, cells: list[str], numeric: bool, place: Place) -> NDArray[Any]:
        if "" in cells:
            raise missing(name, place.row(cells.index("")))
        if not numeric:
            return to_text(cells, name, place, self._limits)
        try:
            if any("_" in cell for cell in cells):  # allowed in Python's numbers alone
                raise ValueError
            return np.array([float(cell) for cell in cells])
        except ValueError:
            at = next(number for number, cell in enumerate(cells) if not _is_number(cell))
            raise not_a_number(name, cells[at], place.row(at)) from None


@contextlib.contextmanager
def open_csv(path: Path, limits: Limits) -> Iterator[CsvTable]:
    """Open a CSV file: read its header."""
    where = repr(os.fspath(path))
    with path_errors(path), path.open("rb") as file:
        raw = file.read(_HEADER)
    if not raw:
        raise GdscoreError(
            f"Expected a line with the names of the columns in {where}, but the file is empty: write it again"
        )
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in raw[:4096]:
        raise GdscoreError(f"Expected {where} to be text in UTF-8, but it is UTF-16 or no text: save it as UTF-8")
    line = re.match(rb'(?:[^"\r\n]|"[^"]*")*', raw)
    header = b"" if line is None else line[0]
    if len(header) == _HEADER:
        raise GdscoreError(f"Expected a first line of at most {_HEADER:,} bytes in {where}, but it is longer")
    try:
        table = CsvTable(path, header.decode("utf-8-sig"), limits)
    except (UnicodeDecodeError, csv.Error, StopIteration):
        raise GdscoreError(
            f"Expected {where} to begin with the names of its columns in UTF-8, but its first line is empty or damaged"
        ) from None
    yield table


def not_a_number(column: str, value: str, where: str) -> GdscoreError:
    """Error about text where a number must be."""
    cure = "write numbers with a decimal point" if re.fullmatch(r"-?\d*,\d+", value) else "write a number"
    return GdscoreError(f"Expected a number in column {column!r}, but got {value[:60]!r} in {where}: {cure}")


def ragged(expected: int, got: int, where: str) -> GdscoreError:
    """Error about a row with too many or too few cells."""
    return GdscoreError(f"Expected {expected} cells, one per column, but got {got} in {where}: write the file again")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell
