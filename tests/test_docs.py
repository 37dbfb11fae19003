"""The examples of the documentation run, and do what they say."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from dmfvi import Network, infer
from dmfvi.models import PoissonGamma

DOCS = Path(__file__).resolve().parents[1] / "docs"


def test_the_worked_model_runs_and_is_the_librarys_own(capsys: pytest.CaptureFixture[str]) -> None:
    text = (DOCS / "write_your_own_model.md").read_text()
    code = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[0]
    names: dict[str, object] = {"__name__": "worked_example"}
    exec(compile(code, "write_your_own_model.md", "exec", dont_inherit=True), names)
    assert "shape" in capsys.readouterr().out
    ours = infer(PoissonGamma(3), names["hospitals"], Network.ring(4))  # type: ignore[arg-type]
    theirs = names["result"]
    np.testing.assert_array_equal(ours.posterior.pack(), theirs.posterior.pack())  # type: ignore[attr-defined]
    lines = code.partition("class PoissonGamma")[2].partition("rng = ")[0].strip().splitlines()
    assert len(lines) < 40


def test_the_readme_runs_as_it_is(
    capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    text = (DOCS.parent / "README.md").read_text()
    names: dict[str, object] = {"__name__": "readme"}
    for code in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        smaller = code.replace("make_ratings(1_000_000)", "make_ratings(20_000)")
        exec(compile(smaller, "README.md", "exec", dont_inherit=True), names)
    rounds, distance = capsys.readouterr().out.split()[:2]
    assert int(rounds) < 100
    assert float(distance) < 1e-6


def test_the_skeleton_runs_as_it_is() -> None:
    spec = importlib.util.spec_from_file_location("skeleton", DOCS / "skeleton_model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["skeleton"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    rng = np.random.default_rng(0)
    waits = [rng.exponential([1.0, 0.2], size=(n, 2)) for n in (10, 40, 25)]
    result = infer(module.MyModel(2), waits, Network.chain(3))
    p = result.posterior.parameters()
    np.testing.assert_allclose(p["shape"], 1.0 + 75)
    np.testing.assert_allclose(p["rate"], 1.0 + np.concatenate(waits).sum(0))


def test_a_model_with_too_few_statistics_is_told() -> None:
    from dmfvi import Statistics

    class Short(PoissonGamma):
        def local_step(self, shard, q):
            return Statistics(np.zeros(2), 0.0)

    with pytest.raises(
        ValueError, match=r"Short\.local_step gave 2 numbers of statistics, expected 6"
    ):
        infer(Short(3), [np.ones((4, 3))])


def test_the_wrong_number_of_shards_is_named() -> None:
    with pytest.raises(ValueError, match="received 2 shards for a network of 3 nodes"):
        infer(PoissonGamma(1), [np.ones((4, 1))] * 2, Network.ring(3))
