"""Formulas as in R, patsy and statsmodels, by ``formulaic``; what they learn from data is agreed over the sites.

A formula is evaluated as Python. One that comes from a file may be anybody's, so only arithmetic and the functions of ``KNOWN`` are.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from dmfvi.extras import lacking
from dmfvi.inference.session import Session
from dmfvi.linalg import FloatArray
from dmfvi.models.regression.columns import TEXT, Column, Level, gathered, summed

#: functions of a formula
KNOWN = frozenset(
    [
        "C",
        "I",
        "Q",
        "log",
        "log2",
        "log10",
        "exp",
        "exp2",
        "exp10",
        "center",
        "scale",
        "standardize",
        "poly",
        "bs",
        "cs",
        "cr",
        "cc",
        "Treatment",
        "Sum",
        "Helmert",
        "Diff",
        "Poly",
    ]
)
#: those of them that learn something from data, and what columns in them need
LEARNING = frozenset(["center", "scale", "standardize", "poly", "bs", "cs", "cr", "cc"])
PLAIN_NAMES = "within functions columns need names without spaces and signs, rename the column"
#: what R reads and the parser does not, and what to do instead
OF_R = {
    r"(?<![\w.)])\.(?![\w.])": "'.' for all other columns is not known, write their names with +",
    r"\|": "'|' is not known; a MixedModel takes the groups of random effects beside the formula (groups=, --groups), and random_slopes",
}
#: functions that stand for what ``fit`` takes
OF_FIT = {
    "offset": "pass fit(offset=...) an array or the name of a column, or exposure= its exponential",
    "Surv": "survival models take times and events beside the formula (time=, event=)",
    "cbind": "pass fit(trials=...) the successes and failures together, with the successes as the target",
}
#: what may follow np. and contr.
OF_NUMPY = frozenset(
    [
        "log",
        "log1p",
        "log2",
        "log10",
        "exp",
        "expm1",
        "sqrt",
        "cbrt",
        "square",
        "abs",
        "sign",
        "sin",
        "cos",
        "tan",
        "arctan",
        "tanh",
        "sinh",
        "cosh",
        "floor",
        "ceil",
        "round",
        "minimum",
        "maximum",
        "clip",
        "where",
    ]
)
OF_CONTRASTS = frozenset(["treatment", "sum", "helmert", "poly", "diff", "SAS"])
MODULES = {"np": OF_NUMPY, "contr": OF_CONTRASTS}
#: what expressions are made of
PARTS = (
    ast.Expression,
    ast.Call,
    ast.keyword,
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.List,
    ast.Tuple,
    ast.Dict,
    ast.BinOp,
    ast.UnaryOp,
    ast.Compare,
    ast.operator,
    ast.unaryop,
    ast.cmpop,
)
#: characters of a formula, and exponents, at most: larger ones take memory and time before anything is fitted
LONGEST, LARGEST_POWER = 4000, 8
#: parameters of center, scale and standardize
AFFINE = {"ddof", "center", "scale"}


class Parsed(NamedTuple):
    """Right-hand side, columns that it needs, those inside C() only, inside and outside, whether it has an intercept, and the left-hand side."""

    right: Any
    variables: tuple[str, ...]
    as_levels: frozenset[str]
    as_both: frozenset[str]
    intercept: bool
    left: Any


@lru_cache(maxsize=64)
def parsed(text: str) -> Parsed:
    """A formula; refused if it is none or calls what it must not."""
    try:
        from formulaic import Formula
    except ImportError as error:
        raise lacking("formula=", "formulaic", "formula") from error
    powers = [int(found) for found in re.findall(r"\*\*\s*(\d{1,9})", text)]
    if len(text) > LONGEST or max(powers, default=0) > LARGEST_POWER:
        raise ValueError(
            f"formula {text[:60]!r}... is too large: {LONGEST} characters and powers of {LARGEST_POWER} are allowed"
        )
    try:
        made = Formula(text)
        right, left = getattr(made, "rhs", made), getattr(made, "lhs", None)
        terms = list(right)
        of_left = [] if left is None else list(left)
        factors = [factor for term in [*terms, *of_left] for factor in term.factors]
    except Exception as error:  # the parser raises nearly anything
        why = next((said for sign, said in OF_R.items() if re.search(sign, text)), str(error))
        raise ValueError(f"formula {text!r} cannot be read: {why.splitlines()[0]}") from error
    if len(of_left) > 1:
        raise ValueError(f"formula {text!r} has {len(of_left)} targets: name one")
    for factor in factors:
        if factor.eval_method.value == "python":
            _check_expression(str(factor.expr), text)
    order = _variables(terms)
    if "Intercept" in order:
        raise ValueError(f"formula {text!r}: a column must not be named 'Intercept', rename it")
    inside = {name for term in terms for f in term.factors for name in _in_levels(str(f.expr))}
    inside &= set(order)
    outside = set(_variables(terms, outside_levels=True))
    intercept = any(str(term) == "1" for term in terms)
    only, both = frozenset(inside - outside), frozenset(inside & outside)
    return Parsed(right, tuple(order), only, both, intercept, left)


def levels_key(name: str) -> str:
    """Where the levels of a column are kept that is also used as it is."""
    return f"C({name})"


def _check_expression(expression: str, text: str) -> None:
    try:
        tree = ast.parse(expression, mode="eval")
    except SyntaxError as error:
        hint = f": {PLAIN_NAMES}" if "`" in expression else ""
        raise ValueError(
            f"formula {text!r}: {expression!r} cannot be read ({error.msg}){hint}"
        ) from error
    for node in ast.walk(tree):
        if _calls(node, LEARNING) and any(_calls(n, {"Q"}) for n in ast.walk(node)):
            raise ValueError(f"formula {text!r}: {expression!r} has Q() inside: {PLAIN_NAMES}")
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    inner = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            base = node.value.id if isinstance(node.value, ast.Name) else ""
            allowed = MODULES.get(base, frozenset())
            fine = node.attr in allowed
        elif isinstance(node, ast.Name):
            fine = (
                id(node) in inner or id(node) not in called or node.id in KNOWN
            ) and not node.id.startswith("__")
        else:
            fine = isinstance(node, PARTS) and not _explodes(node)
        if not fine and isinstance(node, ast.Name) and node.id in OF_FIT:
            raise ValueError(f"formula {text!r}: {node.id} is not known, {OF_FIT[node.id]}")
        if not fine:
            raise ValueError(
                f"formula {text!r}: {expression!r} uses {ast.unparse(node)!r}; known are columns, arithmetic, "
                f"{', '.join(sorted(KNOWN))}, and np.log, np.sqrt and the like"
            )


def _calls(node: ast.AST, names: Collection[str]) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _explodes(node: ast.AST) -> bool:
    """Powers that are not small constants, and repeated words or lists."""
    if not isinstance(node, ast.BinOp):
        return False
    if isinstance(node.op, ast.Pow):
        exponent = node.right.operand if isinstance(node.right, ast.UnaryOp) else node.right
        value = exponent.value if isinstance(exponent, ast.Constant) else None
        return not isinstance(value, int | float) or abs(value) > LARGEST_POWER
    sides = (node.left, node.right)
    return any(
        isinstance(side, ast.List | ast.Tuple)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in sides
    )


def _variables(terms: Sequence[Any], outside_levels: bool = False) -> list[str]:
    """Columns that terms need, in the order in which they occur; all, or those outside C()."""
    found: list[str] = []
    for factor in (factor for term in terms for factor in term.factors):
        expression = str(factor.expr)
        if outside_levels and _in_levels(expression):
            continue
        if factor.eval_method.value == "lookup":
            found.append(expression)
        elif factor.eval_method.value == "python":
            tree = ast.parse(expression, mode="eval")
            found += [
                str(node.args[0].value)
                for node in ast.walk(tree)
                if isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "Q"
                and node.args
                and isinstance(node.args[0], ast.Constant)
            ]
            names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
            found += [name for name in names if name not in KNOWN and name not in MODULES]
    return list(dict.fromkeys(found))


def _in_levels(expression: str) -> list[str]:
    """The column of which an expression is C()."""
    try:
        node = ast.parse(expression, mode="eval").body
    except SyntaxError:  # the name of a column, with spaces
        return []
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "C"):
        return []
    inside = node.args[0] if node.args else None
    if isinstance(inside, ast.Name):
        return [inside.id]
    if (
        isinstance(inside, ast.Call)
        and isinstance(inside.func, ast.Name)
        and inside.func.id == "Q"
        and inside.args
        and isinstance(inside.args[0], ast.Constant)
    ):
        return [str(inside.args[0].value)]
    return []


def _levels_of_factors(
    right: Any, levels: Mapping[str, Sequence[Level]]
) -> dict[str, Sequence[Level]]:
    """The agreed levels of every factor that is a column of words or C() of a column."""
    made = {}
    for factor in (factor for term in right for factor in term.factors):
        expression = str(factor.expr)
        inside = [key for name in _in_levels(expression) for key in (name, levels_key(name))]
        for name in [expression, *inside]:
            if name in levels:
                made[expression] = levels[name]
    return made


def target_of(text: str) -> str | None:
    """The left-hand side, None without one."""
    left = parsed(text).left
    return None if left is None else str(next(iter(left)))


def target_variables(text: str) -> list[str]:
    """Columns of the left-hand side."""
    left = parsed(text).left
    return [] if left is None else _variables(list(left))


def frame_of(columns: Mapping[str, Column], levels: Mapping[str, Sequence[Level]]) -> Any:
    """A pandas frame, categories with the agreed levels."""
    import pandas

    return pandas.DataFrame(
        {
            name: pandas.Categorical(list(column.values), categories=list(levels[name]))
            if name in levels
            else column.values
            for name, column in columns.items()
        }
    )


def evaluated_target(text: str, columns: Mapping[str, Column]) -> Any:
    """Values of the left-hand side: a column as it is, or an expression of columns."""
    name = target_of(text)
    assert name is not None
    if name in columns:
        return columns[name].values
    made = _matrix(parsed(text).left, frame_of(columns, {}), {}, {})
    # a left-hand side has no intercept
    values = np.asarray(made, dtype=np.float64)
    if values.shape[1] != 1:
        raise ValueError(f"the target {name!r} has {values.shape[1]} columns: name one")
    return values[:, 0]


def _matrix(
    right: Any, frame: Any, transforms: Mapping[str, Any], levels: Mapping[str, Any]
) -> Any:
    from formulaic import ModelSpec
    from formulaic.parser.types import Factor

    spec = ModelSpec(
        formula=right,
        ensure_full_rank=True,
        na_action="ignore",
        output="pandas",
        transform_state=copy.deepcopy(dict(transforms)),
        encoder_state={
            name: (Factor.Kind.CATEGORICAL, {"categories": list(known)})
            for name, known in levels.items()
        },
    )
    try:
        with np.errstate(all="ignore"):
            return spec.get_model_matrix(frame, context={})
    except Exception as error:
        raise ValueError(f"formula {right}: {error}") from error


def terms_and_matrix(
    text: str,
    columns: Mapping[str, Column],
    levels: Mapping[str, Sequence[Level]],
    transforms: Mapping[str, Any],
) -> tuple[list[str], FloatArray]:
    """The design without its intercept, and the names of its columns."""
    right = parsed(text).right
    known = _levels_of_factors(right, levels)
    made = _matrix(right, frame_of(columns, levels), transforms, known)
    kept = [name for name in made.columns if name != "Intercept"]
    return [str(name) for name in kept], np.asarray(made[kept], dtype=np.float64)


def agreed_states(
    text: str,
    session: Session,
    parts: Sequence[Mapping[str, Column]],
    levels: Mapping[str, Sequence[Level]],
    weights: Sequence[Any],
) -> dict[str, Any]:
    """What functions of the formula learn from data: means and scales as sums, rows counted by their weights; anything else must be the same."""
    right = parsed(text).right
    known = _levels_of_factors(right, levels)
    made = [_matrix(right, frame_of(part, levels), {}, known).model_spec for part in parts]
    for name, (_, state) in made[0].encoder_state.items():
        if "categories" in state and name not in known:
            raise ValueError(
                f"formula: {name} makes categories of its own from the rows of a site: compute the column first, and write C(column)"
            )
    own = [{name: _plain(state) for name, state in spec.transform_state.items()} for spec in made]
    affine = [n for n, state in own[0].items() if set(state) == AFFINE]
    # what was learned from rows is compared, not sent
    sent = [
        {name: _digest(state) for name, state in each.items() if name not in affine} for each in own
    ]
    sites = gathered(session, sent)
    for name in sites[0]:
        if any(site.get(name) != sites[0][name] for site in sites):
            raise ValueError(
                f"formula: {name} learns from a site's own rows, and the sites have learned different things: give it what it "
                "learns, as in bs(x, knots=[...], lower_bound=..., upper_bound=...)"
            )
    transforms = {n: s for n, s in own[0].items() if n not in affine}
    for name in affine:
        inside = [other for other in own[0] if other != name and other in name]
        if inside:
            raise ValueError(f"formula: {name} contains {inside[0]}: leave one of them out")
        given = [_argument_of(name, part, levels) for part in parts]
        counts = [
            np.ones(len(values)) if weight is None else np.asarray(weight, dtype=np.float64)
            for values, weight in zip(given, weights, strict=True)
        ]
        transforms[name] = _pooled(session, own[0][name], list(zip(given, counts, strict=True)))
    return transforms


def _digest(state: Any) -> str:
    return sha256(repr(state).encode()).hexdigest()


def _argument_of(
    name: str, part: Mapping[str, Column], levels: Mapping[str, Sequence[Level]]
) -> FloatArray:
    """Values of what a function of one argument is given, as np.log(age) in center(np.log(age))."""
    from formulaic import Formula

    call = ast.parse(name, mode="eval").body
    if not isinstance(call, ast.Call) or not call.args:
        raise ValueError(f"formula: {name} must name its column first, as in center(age)")
    given = ast.unparse(call.args[0])
    if given in part and part[given].kind != TEXT:  # truth values would be two indicators
        return np.array([float(value) for value in part[given].values])
    made = _matrix(Formula(f"0 + I({given})"), frame_of(part, levels), {}, {})
    values = np.asarray(made, dtype=np.float64)
    if values.shape[1] != 1:
        raise ValueError(f"formula: {name} takes numbers, and {given} has categories")
    return values[:, 0]


def _pooled(
    session: Session, state: Mapping[str, Any], parts: Sequence[tuple[FloatArray, FloatArray]]
) -> dict[str, Any]:
    """Mean and deviation over the rows of all sites, (values, weights) at each: three sums."""
    made: dict[str, Any] = dict(state)
    ddof, centred = float(state["ddof"]), state["center"] is not None
    total = summed(session, [np.array([w.sum(), w @ x]) for x, w in parts])
    mean = float(total[1] / total[0])
    rest = summed(session, [np.array([w @ (x - mean)]) for x, w in parts])  # what rounding took
    mean += float(rest[0] / total[0])
    if centred:
        made["center"] = mean
    if state["scale"] is not None:
        origin = mean if centred else 0.0
        squares = summed(session, [np.array([w @ (x - origin) ** 2]) for x, w in parts])
        made["scale"] = float(np.sqrt(squares[0] / max(float(total[0]) - ddof, 1.0)))
    return made


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's."""
    if isinstance(value, Mapping):
        return {_plain(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value
