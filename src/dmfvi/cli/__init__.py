"""The command line: one file per group of commands, joined in ``app``."""

from dmfvi.cli.app import main

__all__ = ["main"]
