"""Streams of `Outputs` from ``.npz`` and Parquet files, and back."""

from gdscore.io.read import read_outputs
from gdscore.io.write import write_outputs

__all__ = ["read_outputs", "write_outputs"]
