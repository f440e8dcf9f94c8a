"""``gdscore check``: the accuracy on images by a check network that is adapted to them."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gdscore._files import DEFAULT_LIMITS, ArrayMember, atomic, check_readable, open_archive
from gdscore.cli.console import ClassMix, Debug, HtmlPath, JsonPath, Quiet, read_class_mix, show
from gdscore.cli.files import check_outputs, load_estimator, write_json
from gdscore.cli.images import Batches, ClassesFile, Workers, find_images, load_model, read_lines
from gdscore.errors import GdscoreError

if TYPE_CHECKING:
    from gdscore.models import Agreement

_MODEL = "MODULE:CALLABLE"
_DATA = "Folder of class folders of images, or .npz with `images` (8 bits) and `labels`."


def check(
    model: Annotated[str, typer.Argument(metavar=_MODEL, help="Returns (model, preprocess), as for extract.")],
    labelled: Annotated[Path, typer.Argument(metavar="LABELLED", help=f"Training data, or the reference. {_DATA}")],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="Images without labels: a folder, or .npz.")],
    validation: Annotated[
        Path | None, typer.Option(metavar="DATA", help="Labelled images that the model was not trained on.")
    ] = None,
    estimator: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Estimator of the model to combine with; by default one is fitted."),
    ] = None,
    network: Annotated[
        str | None, typer.Option(metavar=_MODEL, help="What the check network starts from; by default the model.")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="JSON of the work that does not depend on the target: read, or written."),
    ] = None,
    normalize: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="MEAN STD", help="What the preprocessing normalises by: numbers joined by commas."),
    ] = None,
    classes: ClassesFile = None,
    class_mix: ClassMix = None,
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 200,
    batch_size: Annotated[int, typer.Option(min=2, help="Images of each kind in a training step.")] = 64,
    seed: Annotated[int, typer.Option(min=0, help="Seed of draws and augmentations.")] = 0,
    workers: Workers = 4,
    device: Annotated[
        str | None, typer.Option(help="Where to train, such as cuda; by default where the model is.")
    ] = None,
    rows: Annotated[
        Path | None, typer.Option("--rows", metavar="FILE", help="CSV to write: P(right) of each image.")
    ] = None,
    html: HtmlPath = None,
    json_path: JsonPath = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Estimate the accuracy on images by a check network adapted to them, for when outputs are not enough.

    A copy of the model, or --network, is trained for a minute on labelled images and on the target's
    images without labels. Its agreement with the model is close to the model's accuracy. The first call
    also trains on shifted copies of labelled images; --calibration keeps what it finds for the next
    targets of the same model. Needs PyTorch, and a GPU for more than small images; the model is not changed.
    """
    from gdscore import models

    inputs = [path for path in (labelled, target, validation) if path is not None]
    check_outputs(
        [p for p in inputs if p.suffix == ".npz"], rows=rows, calibration=calibration, html=html, json=json_path
    )
    mix = read_class_mix(class_mix)
    agreements = _read_calibration(calibration) if calibration is not None and calibration.exists() else None
    est = None if estimator is None else load_estimator(estimator)
    made, preprocess = load_model(model, device)
    start = None if network is None else load_model(network, device)[0]

    named = None if classes is None else read_lines(classes)

    def loader(path: Path, with_labels: bool = True) -> Batches | _Arrays:
        if path.suffix.lower() == ".npz":
            return _Arrays(path, preprocess, batch_size)
        folder_images = find_images(path, named if with_labels else None)
        if with_labels:
            first = Batches(replace(folder_images, paths=folder_images.paths[:1], labels=None), preprocess, 1, 1)
            (tried,) = models.extract(made, first, progress=False)
            folder_images.check_classes(int(tried.n_classes or 0))
        return Batches(folder_images, preprocess, batch_size, workers)

    images, known_rows = loader(target, with_labels=False), loader(labelled)
    c = models.check(
        made,
        known_rows,
        images,
        est=est,
        network=start,
        val_loader=None if validation is None else loader(validation),
        calibration=agreements,
        normalize=None if normalize is None else (_numbers(normalize[0]), _numbers(normalize[1])),
        class_mix=mix,
        steps=steps,
        batch_size=batch_size,
        seed=seed,
        class_names=known_rows.classes,
        progress=False if quiet else None,
    )
    if calibration is not None and agreements is None:
        write_json(os.fspath(calibration), [asdict(a) for a in c.calibration])
    if rows is not None:
        with atomic(rows, "w") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(["id", "right"])
            table.writerows((name, f"{right:.6f}") for name, right in zip(images.ids, c.right.tolist(), strict=True))
    if html is not None:
        from gdscore.report import Target, write_report

        write_report(html, c.est, Target(target.resolve().name, c.estimate), made_by={"command": "gdscore check"})
    if json_path is not None:
        document = {"estimate": c.estimate.to_dict(), "agreement": asdict(c.agreement), "seconds": c.seconds}
        write_json(json_path, document | {"calibration": [asdict(a) for a in c.calibration]})
    if not quiet and json_path != "-":
        show(str(c.estimate))


class _Arrays:
    """Loader of the images of an npz file, preprocessed one by one."""

    def __init__(self, path: Path, preprocess: Callable[[Any], Any], batch_size: int) -> None:
        import numpy as np

        with open_archive(path, DEFAULT_LIMITS) as archive:
            arrays = {n: ArrayMember(archive, n).read() for n in ("images", "labels") if n in archive.names}
        images = arrays.get("images")
        if images is not None and images.ndim == 4 and images.shape[1] in (1, 3) and images.shape[3] not in (1, 3):
            images = images.transpose(0, 2, 3, 1)
        if images is None or images.dtype != np.uint8 or images.ndim not in (3, 4) or not len(images):
            raise GdscoreError(
                f"Expected `images` of 8 bits, shape (N, H, W), (N, H, W, C) or (N, C, H, W), in {os.fspath(path)!r}, "
                f"but it has {'none' if images is None else f'{images.dtype} of shape {images.shape}'}"
            )
        labels = arrays.get("labels")
        if labels is not None and labels.shape != (len(images),):
            raise GdscoreError(
                f"Expected a label for each of the {len(images)} images in {os.fspath(path)!r}, but `labels` have the "
                f"shape {labels.shape}"
            )
        self.dataset = images[..., 0] if images.ndim == 4 and images.shape[3] == 1 else images
        self.ids, self.classes = [str(row) for row in range(len(images))], None
        self._labels, self._preprocess, self._size = labels, preprocess, batch_size

    def __iter__(self) -> Iterator[Any]:
        """Tensors, with labels where there are."""
        import torch
        from PIL import Image

        for start in range(0, len(self.dataset), self._size):
            part = self.dataset[start : start + self._size]
            x = torch.stack([torch.as_tensor(self._preprocess(Image.fromarray(image))) for image in part])
            yield x if self._labels is None else (x, self._labels[start : start + self._size])


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise GdscoreError(f"Expected --normalize to have numbers joined by commas, but got {text!r}") from None


def _read_calibration(path: Path) -> list[Agreement]:
    from gdscore.models import Agreement

    try:
        agreements = [Agreement(**entry) for entry in json.loads(check_readable(path).read_text(encoding="utf-8"))]
        for value in (v for a in agreements for k, v in asdict(a).items() if k != "family"):
            float(value)
    except (OSError, TypeError, ValueError) as error:
        raise GdscoreError(
            f"Expected what --calibration wrote in {os.fspath(path)!r}, but it is something else ({error}): name "
            "another file"
        ) from error
    return agreements
