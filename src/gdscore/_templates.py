"""HTML templates of the report and of the monitor's pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from gdscore._format import percent

__all__ = ["template_environment"]


def template_environment(package: str, **filters: Callable[..., Any]) -> Environment:
    """Templates of a package, with filters of its own: undefined names are errors, and values are escaped."""
    environment = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "thousands": lambda value: f"{value:,.0f}", **filters}
    return environment
