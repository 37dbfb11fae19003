"""Write the Python blocks of the pages into ``src/dmfvi/examples``, one program a page: make examples."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "src" / "dmfvi" / "examples"


def programs() -> dict[str, str]:
    """Names of files with their text, for every page that has Python blocks."""
    made = {}
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
        if blocks:
            where = page.relative_to(ROOT).as_posix()
            head = f'"""The examples of {where}, in their order."""\n# ruff: noqa\n\n'
            made[f"{page.stem.lower()}_examples.py"] = head + "\n\n".join(blocks)
    return made


if __name__ == "__main__":
    for name, text in programs().items():
        (EXAMPLES / name).write_text(text)
