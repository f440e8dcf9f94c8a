"""``--engine ray``: the work of ``gdscore estimate`` and ``gdscore extract`` on a Ray cluster.

Nothing of it is imported, and Ray need not be installed, unless the option is given.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from functools import lru_cache
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from gdscore.cli.files import TargetFiles
from gdscore.cli.images import Batches, Images
from gdscore.cli.network import load_model
from gdscore.cli.results import Estimated, group_target, in_order
from gdscore.errors import GdscoreError, GdscoreWarning

if TYPE_CHECKING:
    from torch import nn

    from gdscore.distributed import Extraction
    from gdscore.estimator import AccuracyEstimator

__all__ = [
    "Address",
    "Engine",
    "EngineOption",
    "OnError",
    "OnErrorOption",
    "check_options",
    "estimate_on_ray",
    "extract_on_ray",
]

_BLOCK_IMAGES = 1024
_BLOCKS = 64
"""Into so many blocks fewer images are divided, so that workers have enough to share."""
_PANEL = "Many machines"


class Engine(str, Enum):
    """What does the work."""

    LOCAL = "local"
    RAY = "ray"


class OnError(str, Enum):
    """What happens with a file that cannot be read."""

    RAISE = "raise"
    SKIP = "skip"


EngineOption: TypeAlias = Annotated[
    Engine, typer.Option(help="Work in this process, or on a Ray cluster.", rich_help_panel=_PANEL)
]
Address: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Of the cluster: auto, host:port or ray://…; by default one is started on this machine.",
        rich_help_panel=_PANEL,
    ),
]
OnErrorOption: TypeAlias = Annotated[
    OnError | None,
    typer.Option(
        help="With --engine ray, a file that cannot be read ends the work (default) or is left out.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]


def check_options(engine: Engine, address: str | None, on_error: OnError | None) -> None:
    """Refuse options of a cluster without one, and connect where there is to be one."""
    if engine is Engine.LOCAL:
        for name, value in (("--address", address), ("--on-error", on_error)):
            if value is not None:
                raise GdscoreError(
                    f"Expected --engine ray with {name}, but it is not given: add it, or leave {name} out"
                )
        return
    from gdscore import distributed

    # Tasks that are given up fail later, and Ray would tell of each.
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    # A cluster that cannot be reached is wrong usage, not the failure of one target.
    distributed.connect(address)


def estimate_on_ray(
    estimator: AccuracyEstimator,
    target: TargetFiles,
    every: timedelta,
    quiet: bool,
    prefix: str,
    on_error: OnError | None,
) -> list[tuple[TargetFiles, Estimated]]:
    """Estimate each window and segment of a target, or all of it, as `estimate_groups` does in one process."""
    from gdscore.distributed.estimating import estimate_groups

    if target.problem is not None:
        raise target.problem
    found, left_out = estimate_groups(
        estimator,
        target.paths,
        every=every,
        columns=target.columns,
        on_error=(on_error or OnError.RAISE).value,
        progress=False if quiet else None,
    )
    if target.columns.time is None and target.columns.by is None:
        return [(target, Estimated(found[0].estimate, found[0].truth, left_out))]
    return in_order([(group_target(target, f.group, prefix), Estimated(f.estimate, f.truth, left_out)) for f in found])


# -- images ---------------------------------------------------------------------------------------------------


def extract_on_ray(
    name: str,
    images: Images,
    output: Path,
    batch_size: int,
    workers: int,
    device: str | None,
    on_error: OnError | None,
    quiet: bool,
) -> Extraction:
    """Run a model over images on a cluster and write a folder of Parquet files.

    The first image passes through the model in this process, so that most mistakes show before the cluster works.
    """
    from gdscore import distributed, models

    network = _Network(name, os.fspath(Path.cwd()), workers)
    first = replace(images, paths=images.paths[:1], labels=None)
    (tried,) = models.extract(network.model(), [network.images(first)], progress=False)
    if tried.n_classes is not None:
        images.check_classes(tried.n_classes)
    tables = list(_tables(images, batch_size))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GdscoreWarning)  # what is left out is in the result
        return distributed.extract(
            network.model,
            tables,
            output,
            preprocess=network.inputs,
            label=None if images.labels is None else "label",
            keep=["id"],
            batch_size=batch_size,
            num_actors=len(tables),
            num_gpus=1 if (device or "").startswith("cuda") else 0,
            on_error=(on_error or OnError.RAISE).value,
            progress=False if quiet else None,
        )


def _tables(images: Images, batch_size: int) -> Iterator[Any]:
    """Files of the images in blocks of complete batches.

    Their sizes and times are there so that a changed image is another input to the next run.
    """
    import pyarrow as pa

    count = len(images.paths)
    rows = batch_size * ceil(max(1, min(_BLOCK_IMAGES, count / _BLOCKS)) / batch_size)
    for start in range(0, count, rows):
        paths = [path.resolve() for path in images.paths[start : start + rows]]
        found = [path.stat() for path in paths]
        columns: dict[str, Any] = {
            "path": [os.fspath(path) for path in paths],
            "id": images.ids[start : start + rows],
            "size": [stat.st_size for stat in found],
            "changed": [stat.st_mtime_ns for stat in found],
        }
        if images.labels is not None:
            columns["label"] = images.labels[start : start + rows]
        yield pa.table(columns)


@dataclass(frozen=True)
class _Network:
    """Model by name, made in each worker from the modules of the caller's folder."""

    name: str
    folder: str
    workers: int

    def model(self) -> nn.Module:
        """Model, made once in a process."""
        return _loaded(self.name, self.folder)[0]

    def inputs(self, piece: Any) -> Any:
        """Preprocessed images of a record batch with their paths."""
        return self.images(Images(Path(self.folder), list(map(Path, piece.column("path").to_pylist())), None, None))

    def images(self, images: Images) -> Any:
        """Preprocessed images as one batch."""
        return next(iter(Batches(images, _loaded(self.name, self.folder)[1], len(images.paths), self.workers)))


@lru_cache(maxsize=1)
def _loaded(name: str, folder: str) -> tuple[nn.Module, Callable[[Any], Any]]:
    os.chdir(folder)
    return load_model(name)
