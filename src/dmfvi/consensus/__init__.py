"""How neighbours come to agree."""

from dmfvi.consensus.allreduce import AllReduce
from dmfvi.consensus.base import ConsensusRule, Incoming, Place, Progress
from dmfvi.consensus.bregman_admm import BregmanADMM
from dmfvi.consensus.flood import Flood
from dmfvi.consensus.moments_admm import MomentsADMM
from dmfvi.consensus.tracking import StatisticsTracking

#: consensus rules by name; the exactness law runs over this registry
RULES: dict[str, type[ConsensusRule]] = {
    rule.name: rule for rule in (BregmanADMM, MomentsADMM, StatisticsTracking, AllReduce)
}

__all__ = [
    "RULES",
    "AllReduce",
    "BregmanADMM",
    "ConsensusRule",
    "Flood",
    "Incoming",
    "MomentsADMM",
    "Place",
    "Progress",
    "StatisticsTracking",
]
