"""Tests give the same answer in any order and in any process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def shared_generators(text: str) -> Iterator[str]:
    """Functions that draw from a generator of their module: what they get depends on who drew before."""
    tree = ast.parse(text)
    generators = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == "np.random.default_rng"
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            if names & generators:
                yield node.name


@pytest.mark.parametrize(
    "path", sorted(TESTS.rglob("*.py")), ids=lambda path: str(path.relative_to(TESTS))
)
def test_no_test_draws_from_a_generator_of_its_module(path: Path) -> None:
    assert list(shared_generators(path.read_text())) == []


def test_a_shared_generator_is_found() -> None:
    text = "import numpy as np\nRNG = np.random.default_rng(0)\n\ndef test_x():\n    RNG.normal()\n"
    assert list(shared_generators(text)) == ["test_x"]
    assert list(shared_generators(text.replace("RNG.normal()", "pass"))) == []
