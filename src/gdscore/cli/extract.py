"""``gdscore extract``: logits and features of a PyTorch model for a folder of images."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gdscore._files import check_writable
from gdscore._format import percent
from gdscore.cli.console import Address, Debug, EngineOption, OnError, OnErrorOption, Quiet, check_options, show
from gdscore.cli.images import Batches, ClassesFile, Images, Workers, find_images, load_model, read_lines
from gdscore.errors import GdscoreError, GdscoreWarning
from gdscore.io import SUFFIXES

if TYPE_CHECKING:
    from torch import nn

    from gdscore.distributed import Extraction
    from gdscore.outputs import Outputs

_BLOCK_IMAGES = 1024
_BLOCKS = 64
"""Into so many blocks fewer images are divided, so that workers have enough to share."""


def extract(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:CALLABLE",
            help="Returns (model, preprocess); the current folder is searched for the module.",
        ),
    ],
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="Folder of images, or of a sub folder of images for each class.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="PATH", help="Outputs to write: .npz or .parquet; with --engine ray a folder."
        ),
    ],
    peer: Annotated[
        str | None, typer.Option(metavar="MODULE:CALLABLE", help="A second model, for the scores that compare two.")
    ] = None,
    classes: ClassesFile = None,
    threshold: Annotated[
        float | None,
        typer.Option(metavar="P", help="For a binary model: class 1 if its probability is at least P."),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images in a batch.")] = 64,
    workers: Workers = 4,
    device: Annotated[
        str | None, typer.Option(help="Where to run, such as cuda; by default where the model is.")
    ] = None,
    engine: EngineOption = "local",
    address: Address = None,
    on_error: OnErrorOption = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run a PyTorch model on images and write its logits, features and the labels.

    Class folders give labels: folders named by numbers are these classes, others are the classes in the
    order of their names. Images are opened as RGB (or greyscale, where they are) and given to the
    preprocessing one by one. Rows are named by their files. Needs PyTorch; the model is not changed.

    With --engine ray the outputs are a folder of Parquet files. Run it again after it was stopped, and
    it goes on: files of the same images and weights stay. --device cuda gives each worker a GPU.
    """
    import numpy as np

    from gdscore import models
    from gdscore.io import write_outputs

    images = find_images(data, None if classes is None else read_lines(classes))
    if engine == "ray":
        if peer is not None:
            raise GdscoreError("Expected --peer without --engine ray, which runs one model: leave one of them out")
        _check_folder(output)
        check_options(engine, address, on_error)
        done = _extract_on_ray(model, images, output, batch_size, workers, device, threshold, on_error, quiet)
        if not quiet:
            show(f"{done.n_rows:,} images of {data} in {done.parts:,} files, {done.reused:,} of an earlier run.")
            for why in done.skipped.values():
                show(f"left out: {why}", style="yellow")
            show(f"Written: {output}")
        return
    check_options(engine, address, on_error)
    check_writable(output, inputs=[*images.paths, *([classes] if classes else [])], suffixes=(".npz", ".parquet"))
    network, preprocess = load_model(model, device)
    outputs = models.extract(
        network,
        Batches(images, preprocess, batch_size, workers),
        threshold=threshold,
        progress=False if quiet else None,
    )
    second: Iterator[Any] | None = None
    if peer is not None:
        other, other_preprocess = load_model(peer, device)
        # It has its own preprocessing, so images are decoded twice.
        other_loader = Batches(images, other_preprocess, batch_size, workers)
        second = models.extract(other, other_loader, head=False, with_labels=False, progress=False)
    ids = np.array(images.ids)
    n_rows = n_correct = 0

    def rows() -> Iterator[Outputs]:
        nonlocal n_rows, n_correct
        for batch in outputs:
            out = batch.to_numpy()
            if not n_rows and out.n_classes is not None:
                images.check_classes(out.n_classes)
            more = {} if second is None else {"peer_logits": next(second).to_numpy().logits}
            named = out.with_arrays(**more, ids=ids[n_rows : n_rows + len(out)])
            n_rows += len(named)
            n_correct += int(named.correct.sum()) if "labels" in named.has else 0
            yield named

    write_outputs(output, rows())
    if not quiet:
        share = f", {percent(n_correct / n_rows)} classified correctly" if images.labels else ""
        show(f"{n_rows:,} images of {data}{share}.\nWritten: {output}")


def _check_folder(path: Path) -> None:
    """Refuse what cannot become a folder of files to write."""
    shown = os.fspath(path)
    if path.suffix.lower() in SUFFIXES or (path.exists() and not path.is_dir()):
        raise GdscoreError(f"Expected a folder to write many files into, but got {shown!r}: name a folder")
    parent = path.resolve()
    while not parent.exists():
        parent = parent.parent
    if not os.access(parent, os.W_OK):
        raise GdscoreError(f"Expected to write into {shown!r}, but the system refuses: name a folder that is yours")


# -- on a Ray cluster --------------------------------------------------------------------------------------


def _extract_on_ray(
    name: str,
    images: Images,
    output: Path,
    batch_size: int,
    workers: int,
    device: str | None,
    threshold: float | None,
    on_error: OnError | None,
    quiet: bool,
) -> Extraction:
    """Run a model over images on a cluster and write a folder of Parquet files.

    The first image passes through the model in this process, so that most mistakes show before the cluster works; one
    that cannot be read is left out where such are.
    """
    from gdscore import distributed, models

    network = _Network(name, os.fspath(Path.cwd()), workers)
    for place, path in enumerate(images.paths):
        try:
            first = network.images(replace(images, paths=[path], labels=None))
            break
        except GdscoreError:
            if on_error != "skip" or place + 1 == len(images.paths):
                raise
    (tried,) = models.extract(network.model(), [first], threshold=threshold, progress=False)
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
            on_error=on_error or "raise",
            progress=False if quiet else None,
            threshold=threshold,
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
        stats = [path.stat() for path in paths]
        columns: dict[str, Any] = {
            "path": [os.fspath(path) for path in paths],
            "id": images.ids[start : start + rows],
            "size": [stat.st_size for stat in stats],
            "changed": [stat.st_mtime_ns for stat in stats],
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
