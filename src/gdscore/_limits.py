"""How much memory a file may ask for before it is refused: all such numbers are here."""

from __future__ import annotations

from dataclasses import dataclass, fields

from gdscore._options import integer

__all__ = ["DEFAULT_LIMITS", "Limits"]


@dataclass(frozen=True)
class Limits:
    """Limits on what a file may hold, checked before its values are read.

    The defaults are far above what outputs of classifiers need. Raise one where your files are larger:
    ``read_outputs(path, limits=Limits(text=10_000))``.

    Parameters
    ----------
    memory : int
        Bytes of arrays that are read as a whole: all arrays of `read_arrays` and `read_record` together, arrays of an
        ``.npz`` in Fortran order, or a record batch of an Arrow file. 1 GiB by default.
    row : int
        Bytes of one row of outputs. 16 MiB by default, which is 4 million float32 features.
    text : int
        Characters of one id, label or segment name. 1,024 by default.
    json : int
        Bytes of a JSON file or header. 64 MiB by default.
    """

    memory: int = 1 << 30
    row: int = 16 << 20
    text: int = 1024
    json: int = 64 << 20

    def __post_init__(self) -> None:
        for field in fields(self):
            integer(field.name, getattr(self, field.name), least=1)


DEFAULT_LIMITS = Limits()
