"""Accuracy over time without labels: a history, alarms, an HTTP service and its pages."""

from gdscore.monitor.history import Monitor
from gdscore.monitor.notify import Command, Email, Webhook
from gdscore.monitor.rules import Rules
from gdscore.monitor.tracking import log_to_mlflow

__all__ = ["Command", "Email", "Monitor", "Rules", "Webhook", "log_to_mlflow"]
