"""The command `gdscore`: a file for each command, and `main`, which the shell runs."""

from gdscore.cli.app import app, main

__all__ = ["app", "main"]
