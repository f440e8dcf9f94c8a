"""Camelyon17-WILDS: patches of lymph nodes from five hospitals, which are the splits."""

import csv

__all__ = ["Camelyon17"]

COLUMNS = ["patient", "node", "x_coord", "y_coord", "tumor", "center"]


class Camelyon17:
    """``metadata.csv`` and ``patches/patient_<p>_node_<n>/patch_patient_<p>_node_<n>_x_<x>_y_<y>.png``.

    The splits are ``hospital0`` … ``hospital4``, numbered as in the column ``center``; the column ``split`` (which rows
    WILDS holds out within a hospital) is not used: ``benchmarks.data.images.training_parts`` makes that cut.
    """

    size = 96

    def metadata(self, root):
        file = root / "metadata.csv"
        if not file.exists():
            raise ValueError(f"Expected the table {file}, but it does not exist; give the folder that holds it.")
        with file.open(newline="") as lines:
            table = csv.DictReader(lines)
            missing = [column for column in COLUMNS if column not in (table.fieldnames or [])]
            if missing:
                raise ValueError(f"Expected the columns {', '.join(COLUMNS)} in {file}, but {missing} are not there.")
            yield from table

    def splits(self, root):
        return [f"hospital{center}" for center in sorted({row["center"] for row in self.metadata(root)})]

    def classes(self, root, split):
        return ["normal", "tumor"]

    def rows(self, root, split):
        for row in self.metadata(root):
            if f"hospital{row['center']}" != split:
                continue
            place = f"patient_{row['patient']}_node_{row['node']}"
            file = root / "patches" / place / f"patch_{place}_x_{row['x_coord']}_y_{row['y_coord']}.png"
            if not file.exists():
                raise ValueError(
                    f"Expected every image that {root / 'metadata.csv'} names, but {file} does not exist; "
                    f"unpack the archive again."
                )
            yield file, self.classes(root, split)[int(row["tumor"])]
