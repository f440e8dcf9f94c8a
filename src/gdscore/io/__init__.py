"""Streams of `Outputs` from ``.npz``, Parquet, Arrow and CSV files, and back."""

from gdscore._files import Limits
from gdscore._stream import Batch
from gdscore.io.columns import Columns
from gdscore.io.read import SUFFIXES, find_files, read_batches, read_outputs
from gdscore.io.write import write_outputs

__all__ = ["SUFFIXES", "Batch", "Columns", "Limits", "find_files", "read_batches", "read_outputs", "write_outputs"]
