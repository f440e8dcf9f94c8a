"""Rows of estimates in Parquet, one file a suite: one row an estimate of a target by an estimator."""

from benchmarks import RESULTS

__all__ = ["FOLDER", "TYPES", "read_rows", "write_rows"]

FOLDER = RESULTS / "estimates"
# Of each column; what a row does not have is null in the file, and an empty text when it is read.
TYPES = dict.fromkeys(("suite", "source"), "string") | {"seed": "int64", "target": "string", "variant": "string"}
TYPES |= {"rows": "int64", "truth": "double", "estimator": "string"} | dict.fromkeys(
    ("accuracy", "low", "high"), "double"
)
TYPES |= {"class": "int64", "warnings": "string", "reference_accuracy": "double", "reference_rows": "int64"}
TYPES |= {"device": "string", "commit": "string"}


def write_rows(file, rows):
    """Write rows, whose numbers may be texts rounded to the digits that are kept."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if odd := {name for row in rows for name in row} - set(TYPES):
        raise ValueError(f"Expected columns {', '.join(TYPES)}, but got {', '.join(sorted(odd))}.")
    kinds = {"string": str, "int64": int, "double": float}
    columns = {
        name: [None if row.get(name, "") == "" else kinds[kind](row[name]) for row in rows]
        for name, kind in TYPES.items()
    }
    schema = pa.schema([(name, getattr(pa, kind if kind != "double" else "float64")()) for name, kind in TYPES.items()])
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    pq.write_table(pa.table(columns, schema=schema), partial, compression="zstd", compression_level=19)
    partial.replace(file)


def read_rows(folder=FOLDER):
    """Rows of all files of a folder, as dictionaries."""
    import pyarrow.parquet as pq

    return [
        {name: "" if value is None else value for name, value in row.items()}
        for file in sorted(folder.glob("*.parquet"))
        for row in pq.read_table(file).to_pylist()
    ]
