"""The import order: no package imports from one further down in ORDER."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import dmfvi

SOURCE = Path(dmfvi.__file__).parent
#: packages in the order in which they may import; a module belongs to the longest name that it begins with
ORDER = [
    ["tags", "linalg", "sizes", "extras", "lifetime", "compiling", "jit", "chunks"],
    ["families"],
    ["network"],
    ["storage.files", "storage.archive", "storage.structured"],
    ["consensus"],
    ["inference.sensitivity"],
    ["inference.model", "inference.starts", "inference.expansion", "inference.deflation"],
    ["inference.acceleration", "inference.shared_sweeps", "inference.stochastic"],
    ["node"],
    ["storage.journal"],
    ["engines"],
    ["inference.federation", "inference.collective", "inference.result"],
    ["inference.session", "progress"],
    ["inference.response", "inference.checking"],
    [
        "validation",
        "summary_table",
        "incomplete_rows",
        "shard_lists",
        "uncertainty",
        "parameters",
        "presentation",
        "export",
        "estimator",
    ],
    ["models"],
    ["storage", "storage.models"],
    ["readers", "datasets"],
    ["report"],
    ["experiments", "deploy", "demo", "warmup"],
    ["cli", "__main__", "__init__"],
]
RANK = {package: rank for rank, packages in enumerate(ORDER) for package in packages}
#: what the steps of a model may use
OF_A_MODEL = {
    "tags",
    "linalg",
    "families",
    "inference.sensitivity",
    "inference.model",
    "inference.starts",
    "inference.expansion",
    "inference.deflation",
}


def package_of(module: str) -> str:
    """The package of a module, given without the package's name."""
    found = [package for package in RANK if module == package or module.startswith(f"{package}.")]
    assert found, f"{module} is in no package: add it to ORDER"
    return max(found, key=len)


def imports_of(file: Path) -> list[str]:
    """Modules of this library that a file imports when it is imported."""
    found = []
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dmfvi":
            module = (node.module or "").partition(".")[2]
            names = [alias.name for alias in node.names]
            found += [module] if module else [name for name in names if not name.startswith("_")]
        elif isinstance(node, ast.Import):
            found += [a.name.partition(".")[2] for a in node.names if a.name.startswith("dmfvi.")]
    return found


@cache
def modules() -> dict[str, list[str]]:
    """Every module with what it imports."""
    made = {}
    for file in sorted(SOURCE.rglob("*.py")):
        name = ".".join(file.relative_to(SOURCE).with_suffix("").parts)
        if name.startswith("examples."):  # programs of users, no modules
            continue
        made[name.removesuffix(".__init__")] = imports_of(file)
    return made


def test_no_package_imports_from_one_above_it() -> None:
    upwards = [
        f"{name} imports {used}"
        for name, imported in modules().items()
        if name not in ("__init__", "inference")
        for used in imported
        if RANK[package_of(used)] > RANK[package_of(name)]
    ]
    assert not upwards


def test_the_steps_of_a_model_know_no_graph_and_no_engine() -> None:
    """Models use families, the contract and starts; of other models only what is not an estimator."""
    strange = [
        f"{name} imports {used}"
        for name, imported in modules().items()
        if name.startswith("models.") and name.rpartition(".")[2] in ("model", "poisson_gamma")
        for used in imported
        if package_of(used) not in OF_A_MODEL
        and not (package_of(used) == "models" and "estimator" not in used)
    ]
    assert not strange


def test_an_import_upwards_would_be_found(tmp_path: Path) -> None:
    """The check above can fail."""
    file = tmp_path / "wrong.py"
    file.write_text("from dmfvi.cli.app import main\nfrom dmfvi import consensus, __version__\n")
    assert imports_of(file) == ["cli.app", "consensus"]
    assert RANK[package_of("cli.app")] > RANK[package_of("consensus.base")]
