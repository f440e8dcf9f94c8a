"""A PyTorch model by the name of the callable that makes it, as ``module:callable``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gdscore.errors import GdscoreError, nearest

if TYPE_CHECKING:
    from torch import nn

__all__ = ["load_model"]


def load_model(name: str, device: str | None = None) -> tuple[nn.Module, Callable[[Any], Any]]:
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
