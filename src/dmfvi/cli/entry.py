"""Where the program ``dmfvi`` begins: a node is run as it is, all other commands by their parser."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from dmfvi.cli import single_node
from dmfvi.cli.exit_codes import ExitCode
from dmfvi.compiling import told_of_compilation
from dmfvi.lifetime import ignoring_interrupts, interruption, remember_interrupts

#: what is said of a command that writes its result at once, when it is done
NOTHING = "no result is written"


def main() -> None:
    """Entry point: problems with input end in one line, not in a traceback."""
    warned: set[str] = set()  # once is enough, however many fits a command makes

    def warn(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        line = f"{category.__name__}: {message}"
        if line not in warned:
            warned.add(line)
            print(line, file=sys.stderr)

    warnings.showwarning = warn
    remember_interrupts()
    try:
        with told_of_compilation(_say_compiling):
            _run()
    except (KeyboardInterrupt, SystemExit) as ended:
        notes = interruption(ended)  # the parser turns an interrupt into an exit
        if notes is None or getattr(ended, "code", ExitCode.INTERRUPTED) != ExitCode.INTERRUPTED:
            raise
        with ignoring_interrupts():
            print(f"interrupted: {'; '.join(notes or [NOTHING])}", file=sys.stderr)
        sys.exit(ExitCode.INTERRUPTED)
    except (ValueError, OSError, TypeError, ImportError, MemoryError) as error:
        from rich.console import Console
        from rich.markup import escape

        # names of files must not be broken over lines
        Console(stderr=True).print(
            f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True
        )
        sys.exit(ExitCode.ERROR)


def _run() -> None:
    node = single_node.plain(sys.argv[1:])
    if node is not None:
        sys.exit(single_node.run(node))
    from dmfvi.cli.app import app

    app()


def _say_compiling(kernel: str) -> None:
    print(f"compiling {kernel}, only the first time", file=sys.stderr)
