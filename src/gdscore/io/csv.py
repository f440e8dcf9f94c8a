"""Rows of a text file with separated columns (CSV), streamed in constant memory by Arrow's reader.

An empty cell is missing, columns of numbers are float64 and all others text.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyarrow import csv as arrow_csv

from gdscore._files import Limits, path_errors
from gdscore.errors import GdscoreError
from gdscore.io.arrow import RecordBatchReader, decoding, open_file
from gdscore.io.blocks import Block, Table, guarded, rebatched
from gdscore.io.columns import Chosen, ColumnType

_PIECE = 1 << 20
"""Bytes of text that are read at a time, more where there are many columns; Arrow reads several pieces ahead."""
_CELL = 64
"""Bytes of a cell for which a piece has room in all columns of a row."""
_HEADER = 1 << 20
_DELIMITERS = ",;\t|"


class CsvTable(Table):
    """Columns of a CSV file with a header."""

    def __init__(self, path: Path, header: str, limits: Limits) -> None:
        outside_quotes = re.sub(r'"[^"]*"', "", header)
        self._delimiter = max(_DELIMITERS, key=lambda sign: (outside_quotes.count(sign), -_DELIMITERS.index(sign)))
        names = next(csv.reader(io.StringIO(header), delimiter=self._delimiter, strict=True))
        super().__init__(path, names, limits)
        self._piece = max(_PIECE, _CELL * len(names))

    def describe(self, name: str) -> ColumnType:
        """Text, which is read as what it is used for."""
        return ColumnType("csv", 0, "text")

    def blocks(self, chosen: Chosen, batch_rows: int | None) -> Iterator[Block]:
        """Rows in order."""
        return rebatched(guarded(self._pieces(chosen), self._wording), batch_rows)

    def _pieces(self, chosen: Chosen) -> Iterator[Block]:
        reader = RecordBatchReader(self.where, chosen.names, self.limits)
        with open_file(self.path) as handle:
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
            with self.path.open(encoding="utf-8-sig", newline="") as file:
                for _ in csv.reader(file, delimiter=self._delimiter, strict=True):
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
        where = self.where
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
                cure = (
                    "write numbers with a decimal point" if re.fullmatch(r"-?\d*,\d+", value[1]) else "write a number"
                )
                name = self.names[int(column[1])]
                raise GdscoreError(
                    f"Expected a number in column {name!r}, but got {value[1][:60]!r} in {place}: {cure}"
                ) from error
            if wrong:
                raise GdscoreError(
                    f"Expected {wrong[1]} cells, one per column, but got {wrong[2]} in {place}: write the file again"
                ) from error
            if "straddling" in message:
                raise GdscoreError(
                    f"Expected rows of at most {self._piece:,} bytes in {where}, but one is longer: a quotation "
                    "mark may be missing"
                ) from error
            raise


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
