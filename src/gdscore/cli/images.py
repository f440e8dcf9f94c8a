"""Images of a folder in batches, with the classes of their sub folders as labels, and a PyTorch model by its name."""

from __future__ import annotations

import os
import pkgutil
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from gdscore._files import check_readable
from gdscore.errors import GdscoreError

if TYPE_CHECKING:
    from torch import nn


def load_model(name: str, device: str | None = None) -> tuple[nn.Module, Callable[[Any], Any]]:
    """Model and preprocessing that ``module:callable`` returns; modules of the current folder are found too."""
    from torch import nn

    if not all(name.partition(":")):
        raise GdscoreError(f"Expected module:callable, such as network:load for load() in network.py, but got {name!r}")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        load = pkgutil.resolve_name(name)
    except Exception as error:
        raise GdscoreError(
            f"Expected {name} to be a function that can be imported, but it failed with {type(error).__name__}: "
            f"{error}: run the command in the folder of the module, or install what is missing"
        ) from error
    if not callable(load):
        raise GdscoreError(f"Expected {name} to be callable, but it is {type(load).__name__}: name a function")
    try:
        made = load()
    except Exception as error:
        raise GdscoreError(
            f"Expected {name}() to return (model, preprocess), but it failed with {type(error).__name__}: {error}"
        ) from error
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


ClassesFile: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Names of the class folders in the model's order, one a line.")
]
Workers: TypeAlias = Annotated[int, typer.Option(min=1, help="Threads that decode images.")]
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")


@dataclass(frozen=True)
class Images:
    """Files of images by name, and their labels where they lie in class folders."""

    folder: Path
    paths: list[Path]
    labels: list[int] | None
    classes: list[str] | None

    @cached_property
    def ids(self) -> list[str]:
        """Names of the images within the folder; made once, as there may be millions."""
        return [path.relative_to(self.folder).as_posix() for path in self.paths]

    def check_classes(self, number: int) -> None:
        """Refuse class folders that do not tell which of the model's classes they are."""
        if self.classes is None or self.labels is None:
            return
        if max(self.labels) >= number or (len(self.classes) != number and not _numbered(self.classes)):
            raise GdscoreError(
                f"Expected {number} class folders in {os.fspath(self.folder)!r}, one for each class of the model in "
                f"the order of their names, but found {len(self.classes)}: name the folders 0 … {number - 1}, or give "
                "--classes with a file of all their names in the model's order"
            )


def find_images(folder: Path, classes: list[str] | None = None) -> Images:
    """Images of class folders, or of one flat folder without labels.

    ``classes`` names the class folders in the model's order. By default folders named by numbers are these classes, and
    others are classes in the order of their names.
    """
    if not folder.is_dir():
        raise GdscoreError(f"Expected a folder of images, but {os.fspath(folder)!r} is none: check the name")
    paths = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and not any(p.startswith(".") for p in path.relative_to(folder).parts)
    )
    if not paths:
        raise GdscoreError(f"Expected images ({', '.join(SUFFIXES)}) in {os.fspath(folder)!r}, but found none")
    of_folder = [path.relative_to(folder).parts[:-1] for path in paths]
    if not any(of_folder):
        if classes is not None:
            raise GdscoreError(f"Expected class folders in {os.fspath(folder)!r} for --classes, but it has images only")
        return Images(folder, paths, None, None)
    if not all(of_folder):
        stray = paths[of_folder.index(())]
        raise GdscoreError(
            f"Expected either class folders or images in {os.fspath(folder)!r}, but got both: move "
            f"{os.fspath(stray)!r} away"
        )
    present = sorted({parts[0] for parts in of_folder})
    position = {name: int(name) if _numbered(present) else i for i, name in enumerate(present)}
    if classes is not None:
        position = {name: i for i, name in enumerate(classes)}
        for name in present:
            if name not in position:
                raise GdscoreError(f"Expected the class folders among --classes, but {name!r} is none of them")
    labels = [position[parts[0]] for parts in of_folder]
    return Images(folder, paths, labels, classes or present)


def read_lines(path: Path) -> list[str]:
    """Names of classes in a file, one a line."""
    check_readable(path)
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeError) as error:
        raise GdscoreError(f"Expected to read --classes from {os.fspath(path)!r}, but it failed: {error}") from error
    return [line for line in lines if line]


def _numbered(names: list[str]) -> bool:
    return all(name.isascii() and name.isdigit() for name in names)


class Batches:
    """Loader of batches of preprocessed images, in order, decoded ahead by threads (``workers``)."""

    def __init__(self, images: Images, preprocess: Callable[[Any], Any], batch_size: int, workers: int) -> None:
        self.dataset = images.paths  # where torch's loaders have their length
        self._images, self._preprocess = images, preprocess
        self._size, self._workers = batch_size, workers

    @property
    def ids(self) -> list[str]:
        """Names of the images within their folder."""
        return self._images.ids

    @property
    def classes(self) -> list[str] | None:
        """Names of all classes in the model's order, where the folders tell them."""
        names = self._images.classes
        return None if names is None or _numbered(names) else names

    def __iter__(self) -> Iterator[Any]:
        """Tensors, with labels where there are."""
        import torch

        labels = self._images.labels
        rows = self._decoded()
        for start in range(0, len(self.dataset), self._size):
            batch = list(islice(rows, self._size))
            self._check_shapes(batch, start)
            x = torch.stack(batch)
            yield x if labels is None else (x, torch.tensor(labels[start : start + len(x)]))

    def _decoded(self) -> Iterator[Any]:
        waiting: deque[Future[Any]] = deque()
        with ThreadPoolExecutor(self._workers) as pool:
            try:
                for path in self.dataset:
                    waiting.append(pool.submit(self._read, path))
                    if len(waiting) > self._size:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()

    def _read(self, path: Path) -> Any:
        import torch
        from PIL import Image

        try:
            with Image.open(path) as file:
                image = file.convert("RGB") if file.mode not in ("L", "RGB") else file.copy()
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            reason = str(error) or type(error).__name__
            raise GdscoreError(f"Expected an image in {os.fspath(path)!r}, but it cannot be read: {reason}") from error
        try:
            return torch.as_tensor(self._preprocess(image))
        except Exception as error:
            raise GdscoreError(
                f"Expected the preprocessing to turn {os.fspath(path)!r} ({image.mode}, {image.width}×{image.height}) "
                f"into a tensor, but it failed with {type(error).__name__}: {error}"
            ) from error

    def _check_shapes(self, batch: list[Any], start: int) -> None:
        shape = tuple(batch[0].shape)
        for path, x in zip(self.dataset[start:], batch, strict=False):
            if x.shape != shape:
                raise GdscoreError(
                    f"Expected the preprocessing to give tensors of one shape, but {os.fspath(path)!r} gives "
                    f"{tuple(x.shape)} and the images before it {shape}: resize them there"
                )
