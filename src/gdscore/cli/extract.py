"""``gdscore extract``: logits and features of a PyTorch model for a folder of images."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gdscore._format import percent
from gdscore._paths import check_readable, check_writable
from gdscore.cli.cluster import Address, Engine, EngineOption, OnErrorOption, check_options, extract_on_ray
from gdscore.cli.console import Debug, Quiet, show
from gdscore.cli.network import load_model
from gdscore.errors import GdscoreError
from gdscore.io import SUFFIXES

if TYPE_CHECKING:
    from gdscore.cli.images import Images
    from gdscore.outputs import Outputs

__all__ = ["extract"]


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
    classes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Names of the class folders in the model's order, one a line.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images in a batch.")] = 64,
    workers: Annotated[int, typer.Option(min=1, help="Threads that decode images.")] = 4,
    device: Annotated[
        str | None, typer.Option(help="Where to run, such as cuda; by default where the model is.")
    ] = None,
    engine: EngineOption = Engine.LOCAL,
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
    from gdscore import models
    from gdscore.cli.images import Batches, find_images
    from gdscore.io import write_outputs

    images = find_images(data, None if classes is None else _lines(classes))
    if engine is Engine.RAY:
        if peer is not None:
            raise GdscoreError("Expected --peer without --engine ray, which runs one model: leave one of them out")
        _check_folder(output)
        check_options(engine, address, on_error)
        done = extract_on_ray(model, images, output, batch_size, workers, device, on_error, quiet)
        if not quiet:
            show(f"{done.rows:,} images of {data} in {done.parts:,} files, {done.reused:,} of an earlier run.")
            for why in done.skipped.values():
                show(f"left out: {why}", style="yellow")
            show(f"Written: {output}")
        return
    check_options(engine, address, on_error)
    check_writable(output, inputs=[*images.paths, *([classes] if classes else [])], suffixes=(".npz", ".parquet"))
    network, preprocess = load_model(model, device)
    outputs = models.extract(
        network, Batches(images, preprocess, batch_size, workers), progress=False if quiet else None
    )
    second: Iterator[Any] | None = None
    if peer is not None:
        other, other_preprocess = load_model(peer, device)
        # It has its own preprocessing, so images are decoded twice.
        other_loader = Batches(images, other_preprocess, batch_size, workers)
        second = models.extract(other, other_loader, head=False, labels=False, progress=False)
    counted = _Counted()
    write_outputs(output, counted.rows(outputs, second, images))
    if not quiet:
        share = f", {percent(counted.correct / counted.n)} classified correctly" if images.labels else ""
        show(f"{counted.n:,} images of {data}{share}.\nWritten: {output}")


class _Counted:
    """Counts rows on their way to the file."""

    n = 0
    correct = 0

    def rows(self, outputs: Iterator[Outputs], second: Iterator[Outputs] | None, images: Images) -> Iterator[Outputs]:
        import numpy as np

        from gdscore.outputs import Outputs

        ids = np.array(images.ids)
        for batch in outputs:
            out = batch.to_numpy()
            if not self.n and out.n_classes is not None:
                images.check_classes(out.n_classes)
            more = {} if second is None else {"peer_logits": next(second).to_numpy().logits}
            named = Outputs(**out.arrays, **more, ids=ids[self.n : self.n + len(out)])
            self.n += len(named)
            self.correct += int(named.correct.sum()) if "labels" in named.has else 0
            yield named


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


def _lines(path: Path) -> list[str]:
    check_readable(path)
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeError) as error:
        raise GdscoreError(f"Expected to read --classes from {os.fspath(path)!r}, but it failed: {error}") from error
    return [line for line in lines if line]
