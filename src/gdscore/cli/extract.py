"""``gdscore extract``: logits and features of a PyTorch model for a folder of images."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gdscore._format import percent
from gdscore._paths import check_readable
from gdscore.cli.console import Debug, Quiet, show
from gdscore.cli.files import check_writable
from gdscore.errors import GdscoreError, nearest

if TYPE_CHECKING:
    from torch import nn

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
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run a PyTorch model on images and write its logits, features and the labels.

    Class folders give labels: folders named by numbers are these classes, others are the classes in the
    order of their names. Images are opened as RGB (or greyscale, where they are) and given to the
    preprocessing one by one. Rows are named by their files. Needs PyTorch; the model is not changed.
    """
    from gdscore import models
    from gdscore.cli.images import Batches, find_images
    from gdscore.io import write_outputs

    images = find_images(data, None if classes is None else _lines(classes))
    check_writable(output, inputs=[*images.paths, *([classes] if classes else [])], suffixes=(".npz", ".parquet"))
    network, preprocess = _load_model(model, device)
    outputs = models.extract(
        network, Batches(images, preprocess, batch_size, workers), progress=False if quiet else None
    )
    second: Iterator[Any] | None = None
    if peer is not None:
        other, other_preprocess = _load_model(peer, device)
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


def _lines(path: Path) -> list[str]:
    check_readable(path)
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeError) as error:
        raise GdscoreError(f"Expected to read --classes from {os.fspath(path)!r}, but it failed: {error}") from error
    return [line for line in lines if line]


# -- a model by the name of the callable that makes it --------------------------------------------------------


def _load_model(name: str, device: str | None) -> tuple[nn.Module, Callable[[Any], Any]]:
    """Model and preprocessing that ``module:callable`` returns; modules of the current folder are found too."""
    from torch import nn

    made = _call(_find_callable(name), name)
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module) and callable(made[1])):
        got = f"a tuple of {len(made)}" if isinstance(made, tuple) else type(made).__name__
        raise GdscoreError(
            f"Expected {name} to return (model, preprocess), a torch.nn.Module and a callable from a PIL image to a "
            f"tensor, but got {got}"
        )
    if device is not None:
        try:
            made[0].to(device)
        except (RuntimeError, AssertionError) as error:
            raise GdscoreError(f"Expected --device to be there, but {device!r} is refused: {error}") from error
    return made


def _find_callable(name: str) -> Callable[[], Any]:
    module_name, colon, path = name.partition(":")
    if not (module_name and colon and path):
        raise GdscoreError(f"Expected module:callable, such as network:load for load() in network.py, but got {name!r}")
    current = str(Path.cwd())
    if current not in sys.path:
        sys.path.insert(0, current)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise GdscoreError(
                f"Expected a module {module_name!r} that can be imported, but there is none: run the command in its "
                "folder, or install it"
            ) from error
        raise GdscoreError(f"{module_name} needs the module {error.name!r}, which is not installed") from error
    except Exception as error:
        raise GdscoreError(f"Importing {module_name!r} failed with {type(error).__name__}: {error}") from error
    for part in path.split("."):
        if not hasattr(found, part):
            offered = [n for n, v in vars(found).items() if callable(v) and not n.startswith("_")]
            raise GdscoreError(f"Expected {part!r} in {module_name}, but there is none: {nearest(part, offered)}")
        found = getattr(found, part)
    if not callable(found):
        raise GdscoreError(f"Expected {name} to be callable, but it is {type(found).__name__}: name a function")
    return found  # type: ignore[no-any-return]


def _call(function: Callable[[], Any], name: str) -> Any:
    try:
        return function()
    except Exception as error:
        raise GdscoreError(
            f"Expected {name}() to return (model, preprocess), but it failed with {type(error).__name__}: {error}"
        ) from error
