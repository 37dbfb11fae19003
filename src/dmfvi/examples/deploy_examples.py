"""The examples of docs/deploy.md, in their order."""
# ruff: noqa

import numpy as np

from dmfvi import BayesianPCA, Federation, Network
from dmfvi.engines import make
from dmfvi.engines.net.faults import Faults

rng = np.random.default_rng(0)
rows = rng.normal(size=(60, 2)) @ rng.normal(size=(2, 5)) + 0.1 * rng.normal(size=(60, 5))
engine = make("inproc", faults=Faults(loss=0.1), journal="kept", resume=False)
model = BayesianPCA(2, network=Federation(Network.ring(3), engine=engine), random_state=0)
model.fit(rows)
