"""The packed form of a split: an uncompressed ``.npz`` that is written row by row and read by memory mapping.

Any NumPy reads it with ``np.load``. Mapping its pixels instead skips the archive's checksum and takes neither time nor
memory for rows that nobody asks for: of Tiny-ImageNet's 100,000 (1.2 GB), 3,000 come in 0.05 s and all in half the time.
"""

import zipfile

import numpy as np

__all__ = ["mapped", "write"]


def write(file, images, shape, labels, classes):
    """Write `images`, an iterator of uint8 arrays of one `shape`, as many as `labels`; complete or not at all."""
    partial = file.with_suffix(".partial")
    header = {"descr": "|u1", "fortran_order": False, "shape": (len(labels), *shape)}
    try:
        with zipfile.ZipFile(partial, "w") as archive:
            with archive.open("images.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(member, header)
                for _, image in zip(labels, images, strict=True):
                    member.write(np.ascontiguousarray(image, dtype=np.uint8).reshape(shape).data)
            for name, values in (("labels", np.array(labels, dtype=np.int64)), ("classes", np.array(classes))):
                with archive.open(f"{name}.npy", "w") as member:
                    np.lib.format.write_array(member, values, allow_pickle=False)
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def mapped(file):
    """Images of a packed file without reading them, its labels, and the names of its classes."""
    with np.load(file, allow_pickle=False) as packed:
        labels, classes = packed["labels"], packed["classes"].tolist()
        entry = packed.zip.getinfo("images.npy")
    if entry.compress_type != zipfile.ZIP_STORED:
        raise ValueError(
            f"Expected {file} to be uncompressed, as np.savez writes it, but it is compressed; pack again."
        )
    with file.open("rb") as content:
        # The entry's own header is repeated before its content, with an extra field of another length.
        content.seek(entry.header_offset + 26)
        name, extra = np.frombuffer(content.read(4), dtype="<u2").tolist()
        content.seek(name + extra, 1)
        version = np.lib.format.read_magic(content)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, _, dtype = read(content)
        return np.memmap(content, dtype, "r", offset=content.tell(), shape=shape), labels, classes
