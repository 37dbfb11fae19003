"""How neighbours come to agree: consensus rules by name, and their only maker."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any

from dmfvi.consensus.allreduce import AllReduce
from dmfvi.consensus.base import ConsensusRule, Incoming, LocalView, Progress
from dmfvi.consensus.bregman_admm import BregmanADMM
from dmfvi.consensus.exact_sum import ExactSum
from dmfvi.consensus.flood import Flood
from dmfvi.consensus.moments_admm import MomentsADMM
from dmfvi.consensus.parameter_admm import ParameterADMM
from dmfvi.consensus.tracking import StatisticsTracking
from dmfvi.network import Network

#: consensus rules by name; one line enrols a rule, and the laws of tests/laws run over this registry
RULES: dict[str, type[ConsensusRule]] = {
    rule.name: rule
    for rule in (
        ExactSum,
        BregmanADMM,
        StatisticsTracking,
        AllReduce,
        MomentsADMM,
        ParameterADMM,
        Flood,
    )
}


def settings_of(name: str) -> list[str]:
    """The settings that a rule takes."""
    return list(_settings_of(RULES[name]))


@lru_cache(maxsize=32)
def _settings_of(rule: type[ConsensusRule]) -> tuple[str, ...]:
    parameters = inspect.signature(rule).parameters.values()
    return tuple(p.name for p in parameters if p.kind is not p.VAR_KEYWORD)


def make(name: str | ConsensusRule, network: Network, **settings: Any) -> ConsensusRule:
    """The rule of that name for a network; the only place where rules are made. A made rule keeps its settings.

    Parameters
    ----------
    name : str or ConsensusRule
        One of ``RULES``, or a rule that was made already.
    network : Network
        The graph that the rule runs on.
    **settings : Any
        Those of the rule's class.
    """
    if isinstance(name, ConsensusRule):
        if settings:
            raise ValueError(
                f"consensus {name.name!r} is made already, received settings {sorted(settings)}: "
                "give them when it is made"
            )
        return name.for_network(network)
    if not isinstance(name, str) or name not in RULES:
        raise ValueError(f"consensus must be one of {sorted(RULES)}, received {name!r}")
    known = settings_of(name)
    strange = sorted(set(settings) - set(known))
    if strange:
        raise ValueError(f"consensus {name!r} has no setting {strange}, known are {known}")
    return RULES[name](**settings).for_network(network)


__all__ = [
    "RULES",
    "AllReduce",
    "BregmanADMM",
    "ConsensusRule",
    "ExactSum",
    "Flood",
    "Incoming",
    "LocalView",
    "MomentsADMM",
    "ParameterADMM",
    "Progress",
    "StatisticsTracking",
    "make",
    "settings_of",
]
