"""Accuracy over time without labels: a history, alarms, an HTTP service and its pages."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gdscore.monitor.history import Monitor
    from gdscore.monitor.notify import Command, Email, Webhook, log_to_mlflow
    from gdscore.monitor.rules import Rules

__all__ = ["Command", "Email", "Monitor", "Rules", "Webhook", "log_to_mlflow"]

_MODULES = {"Monitor": "history", "Rules": "rules"}


def __getattr__(name: str) -> Any:
    # Notices and `log_to_mlflow` work without SQLAlchemy, which the history needs.
    if name not in __all__:
        raise AttributeError(f"module 'gdscore.monitor' has no attribute {name!r}")
    return getattr(importlib.import_module(f"gdscore.monitor.{_MODULES.get(name, 'notify')}"), name)
