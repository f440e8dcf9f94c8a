"""Commands that measure every number in the documentation, on the public API.

Run from the repository root: ``python -m benchmarks.<package>.<module>``; README.md has a table of all of them.
"""

from pathlib import Path

__all__ = ["RESULTS", "ROOT"]

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
