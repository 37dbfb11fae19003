"""The list of long cases is true: each pattern stands for a test that exists."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from slow_cases import PATTERNS, is_slow

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_names_a_test(pattern: str) -> None:
    file, _, rest = pattern.partition("::")
    name = rest.partition("[[]")[0].rstrip("*")
    known = {
        node.name
        for node in ast.walk(ast.parse((ROOT / file).read_text()))
        if isinstance(node, ast.FunctionDef)
    }
    assert name in known


def test_brackets_are_those_of_a_case() -> None:
    assert is_slow("tests/experiments/test_targets.py::test_hopkins[5]")
    assert not is_slow("tests/experiments/test_targets.py::test_hopkins[1]")
