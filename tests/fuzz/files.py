"""Files of outputs: npz, Parquet, Arrow and CSV."""

import io
import zipfile

import numpy as np

import gdscore
from gdscore._files import Limits, read_arrays
from gdscore.io import Columns, read_batches, read_outputs, write_outputs

from .harness import attack
from .values import damaged, odd, pick

LIMITS = Limits(memory=64 << 20)


def sound(rows=40):
    rng = np.random.default_rng(1)
    return gdscore.Outputs(
        logits=rng.standard_normal((rows, 3)).astype("f4"),
        features=rng.standard_normal((rows, 4)),
        labels=rng.integers(0, 3, rows),
        ids=np.array([f"row é {i}" for i in range(rows)]),
    )


def checked(batches):
    """Numbers of all rows; they must be as finite as `Outputs` promises."""
    return [array for out in batches for array in out.arrays.values() if array.dtype.kind == "f"]


@attack
def npz(folder):
    """Damaged archives, headers and members of every compression."""
    arrays = dict(sound().arrays)
    raws = []
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        raw = io.BytesIO()
        with zipfile.ZipFile(raw, "w", method) as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w") as member:
                    np.lib.format.write_array(member, np.asfortranarray(array) if name == "features" else array)
        raws.append(raw.getvalue())

    def case(rng):
        raw = pick(rng, raws[:2] if rng.integers(4) else raws)
        if rng.integers(2):
            raw = rebuilt(raw, rng)
        path = folder / "x.npz"
        path.write_bytes(damaged(raw, rng) if rng.integers(4) else raw)
        if rng.integers(2):
            read_arrays(path if rng.integers(2) else path.read_bytes(), limits=LIMITS)
            return []
        return checked(read_outputs(path, batch_rows=pick(rng, [None, 7]), progress=False, limits=LIMITS))

    return case


def rebuilt(raw, rng):
    """The archive with one member damaged and valid checksums."""
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as archive, zipfile.ZipFile(changed, "w", zipfile.ZIP_DEFLATED) as made:
        chosen = pick(rng, archive.namelist())
        for name in archive.namelist():
            member = archive.read(name)
            if name == chosen:
                member = damaged(member[:128], rng) + member[128:] if rng.integers(2) else damaged(member, rng)
            made.writestr(name, member)
    return changed.getvalue()


def table(rows=40):
    import pyarrow as pa

    out = sound(rows)
    return pa.table(
        {
            "logits": pa.array(out.arrays["logits"].tolist(), pa.list_(pa.float32())),
            "features": pa.FixedSizeListArray.from_arrays(pa.array(out.features.ravel()), 4),
            "label": pa.array(out.labels),
            "id": pa.array(out.ids.tolist()),
            "time": pa.array(np.arange(rows).astype("datetime64[h]").astype("datetime64[us]")),
            "country": pa.array(["fr", "de"] * (rows // 2)).dictionary_encode(),
        }
    )


COLUMNS = (Columns(), Columns(time="time", by="country"))


def read_damaged(raws, path):
    def case(rng):
        path.write_bytes(damaged(pick(rng, raws), rng))
        columns = pick(rng, COLUMNS)
        batches = read_batches(path, columns=columns, batch_rows=pick(rng, [None, 7]), progress=False, limits=LIMITS)
        return checked(batch.outputs for batch in batches)

    return case


@attack
def parquet(folder):
    """Damaged Parquet files of several encodings and compressions."""
    import pyarrow.parquet as pq

    raws = []
    for options in ({"compression": "none"}, {"row_group_size": 9, "use_dictionary": False}, {"compression": "gzip"}):
        raw = io.BytesIO()
        pq.write_table(table(), raw, **options)
        raws.append(raw.getvalue())
    write_outputs(folder / "ours.parquet", sound())
    return read_damaged([*raws, (folder / "ours.parquet").read_bytes()], folder / "x.parquet")


@attack
def arrow(folder):
    """Damaged Arrow files and streams."""
    import pyarrow as pa

    raws = []
    for make in (pa.ipc.new_file, pa.ipc.new_stream):
        for compression in (None, "lz4", "zstd"):
            raw = io.BytesIO()
            with make(raw, table().schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
                writer.write_table(table(), max_chunksize=15)
            raws.append(raw.getvalue())
    return read_damaged(raws, folder / "x.arrow")


@attack
def csv(folder):
    """Damaged text, odd cells and odd columns."""
    rng = np.random.default_rng(2)
    p = rng.dirichlet(np.ones(3), size=30)
    names = ["a", "b", "c"]
    cells = [
        "",
        " ",
        "nan",
        "inf",
        "1e999",
        "-1",
        "0,5",
        "1_0",
        "0x10",
        '"',
        '""',
        "é",
        "\0",
        "\r",
        "\x1b[31m",
        "x" * 3000,
    ]

    def text(rng):
        sign = pick(rng, [",", ";", "\t"])
        lines = [sign.join([*(f"p_{name}" for name in names), "label", "time", "country"])]
        for row in range(30):
            lines.append(sign.join([*map(repr, p[row].tolist()), names[row % 3], f"2026-01-{row + 1:02}", "fr"]))
        if rng.integers(2):
            at = int(rng.integers(len(lines)))
            parts = lines[at].split(sign)
            parts[int(rng.integers(len(parts)))] = pick(rng, cells)
            lines[at] = sign.join(parts)
        return pick(rng, ["\n", "\r\n"]).join(lines).encode()

    def case(rng):
        raw = text(rng)
        path = folder / "x.csv"
        path.write_bytes(raw if not rng.integers(3) else damaged(raw, rng))
        options = {"probabilities": pick(rng, ["p_*", ["p_a", "p_b", "p_c"], "p_*", "*", odd(rng)])}
        for name, column in {"label": "label", "time": "time", "by": "country"}.items():
            if rng.integers(2):
                options[name] = column if rng.integers(10) else odd(rng)
        batches = read_batches(path, columns=Columns(**options), batch_rows=pick(rng, [None, 7]), progress=False)
        return checked(batch.outputs for batch in batches)

    return case
