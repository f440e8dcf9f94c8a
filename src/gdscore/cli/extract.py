"""``gdscore extract``: what a PyTorch model says about a folder of images."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gdscore.cli.console import percent, results
from gdscore.cli.options import Debug, Quiet
from gdscore.cli.writing import check_apart, check_writable
from gdscore.errors import GdscoreError

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
    output: Annotated[Path, typer.Option("--output", "-o", metavar="PATH", help="Outputs to write: .npz or .parquet.")],
    head: Annotated[
        Path | None, typer.Option(metavar="NPZ", help="Write the model's last layer too, for `gdscore fit --head`.")
    ] = None,
    peer: Annotated[
        str | None, typer.Option(metavar="MODULE:CALLABLE", help="A second model, for the scores that compare two.")
    ] = None,
    classes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Names of the class folders in the model's order, one a line.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images at once.")] = 64,
    workers: Annotated[int, typer.Option(min=1, help="Threads that decode images.")] = 4,
    device: Annotated[
        str | None, typer.Option(help="Where to run, such as cuda; by default where the model is.")
    ] = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Ask a PyTorch model about images and write logits, features and labels.

    Class folders give labels: folders named by numbers are these classes, others are the classes in the
    order of their names. Images are opened as RGB (or greyscale, where they are) and given to the
    preprocessing one by one. Rows are named by their files. Needs PyTorch; the model is not changed.
    """
    from gdscore import models
    from gdscore.cli.images import Batches, find_images
    from gdscore.cli.loading import load_model
    from gdscore.files import write_arrays
    from gdscore.io import write_outputs

    images = find_images(data, None if classes is None else _lines(classes))
    inputs = [*images.paths, *([classes] if classes else [])]
    check_writable(output, inputs=inputs, suffixes=(".npz", ".parquet"))
    check_writable(head, inputs=inputs, suffixes=(".npz",))
    check_apart(output, head, "--output and --head")
    network, preprocess = _loaded(load_model, model, device)
    loader = Batches(images, preprocess, batch_size, workers)
    progress = False if quiet else None
    said = models.extract(network, loader, progress=progress)
    second: Iterator[Any] | None = None
    if peer is not None:
        other, other_preprocess = _loaded(load_model, peer, device)
        # Its own preprocessing, so images are decoded twice.
        other_loader = Batches(images, other_preprocess, batch_size, workers)
        second = models.extract(other, other_loader, head=False, labels=False, progress=False)
    few = replace(images, paths=images.paths[:2], labels=None)
    layer = None if head is None else _head(network, next(iter(Batches(few, preprocess, 2, 1))))
    seen = _Seen()
    write_outputs(output, seen.rows(said, second, images))
    if head is not None and layer is not None:
        write_arrays(head, layer)
    if not quiet:
        share = f", {percent(seen.correct / seen.n)} classified correctly" if images.labels else ""
        results().print(
            f"{seen.n:,} images of {data}{share}.\nWritten: {output}{f', {head}' if head else ''}", markup=False
        )


class _Seen:
    """Counts what passes on its way to the file."""

    n = 0
    correct = 0

    def rows(self, said: Iterator[Outputs], second: Iterator[Outputs] | None, images: Images) -> Iterator[Outputs]:
        import numpy as np

        from gdscore.outputs import Outputs

        ids = np.array(images.ids)
        for batch in said:
            out = batch.to_numpy()
            if not self.n and out.n_classes is not None:
                images.check_classes(out.n_classes)
            more = {} if second is None else {"peer_logits": next(second).to_numpy().logits}
            named = Outputs(**out.arrays, **more, ids=ids[self.n : self.n + len(out)])
            self.n += len(named)
            self.correct += int(named.correct.sum()) if "labels" in named.has else 0
            yield named


def _loaded(load: Any, name: str, device: str | None) -> tuple[Any, Any]:
    network, preprocess = load(name)
    if device is not None:
        try:
            network.to(device)
        except (RuntimeError, AssertionError) as error:
            raise GdscoreError(f"Expected --device to be there, but {device!r} is refused: {error}") from error
    return network, preprocess


def _head(network: Any, batch: Any) -> dict[str, Any]:
    from gdscore import models

    weight, bias = models.head_of(network, batch)
    layer = {"weight": weight} | ({} if bias is None else {"bias": bias})
    return {name: tensor.detach().float().cpu().numpy() for name, tensor in layer.items()}


def _lines(path: Path) -> list[str]:
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeError) as error:
        raise GdscoreError(f"Expected to read --classes from {os.fspath(path)!r}, but it failed: {error}") from error
    return [line for line in lines if line]
