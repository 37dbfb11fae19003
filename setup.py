"""The long description of the package: the README without links and images that lead nowhere outside of the repository.

All other metadata are in pyproject.toml.
"""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import setup

IMAGE = re.compile(r"!\[[^\]]*\]\((?!https?:)[^)]*\)\n*")
IN_BRACKETS = re.compile(r"\(\[[^\]]*\]\((?!https?:|#)([^)]*)\)\)")
LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|#)([^)]*)\)")
#: where the files are that the description names
NOTE = "Files that are named here, `docs/` for example, are in the source archive.\n"


def long_description(readme: str) -> str:
    """Links to files of the repository as names of these files, images left out."""
    text = IMAGE.sub("", readme)
    text = IN_BRACKETS.sub(r"(see `\1`)", text)
    text = LINK.sub(r"\1 (`\2`)", text)
    return f"{text.rstrip()}\n\n{NOTE}"


if __name__ == "__main__":
    setup(
        long_description=long_description(
            (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
        ),
        long_description_content_type="text/markdown",
    )
