"""The command line: one file per group of commands, joined in ``app``; ``entry`` is where the program begins."""

from dmfvi.cli.entry import main

__all__ = ["main"]
