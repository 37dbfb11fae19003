"""The examples of docs/numpyro.md, in their order."""
# ruff: noqa

import jax
import numpyro
import numpy as np
import numpyro.distributions as dist
from jax.flatten_util import ravel_pytree
from numpyro.handlers import block
from numpyro.infer.util import initialize_model, potential_energy

from dmfvi import Expansion, LaplaceModel, Network, infer

jax.config.update("jax_enable_x64", True)  # single precision would end the Newton steps early


class NumpyroModel(LaplaceModel):
    """A NumPyro model for shards that are the arguments of its function, one tuple per node."""

    def __init__(self, function, shard, n_nodes):
        found = initialize_model(jax.random.key(0), function, model_args=shard)
        begin, self.names = ravel_pytree(found.param_info.z)
        observed = [name for name, site in found.model_trace.items() if site.get("is_observed")]
        prior_only = block(function, hide=observed)
        super().__init__(np.zeros(len(begin)), np.zeros(len(begin)))  # flat: the prior is below

        def share(theta, rows):  # of the log density: each node counts its part of the prior
            whole, prior = (
                -potential_energy(each, rows, {}, self.names(theta))
                for each in (function, prior_only)
            )
            return whole - prior + prior / n_nodes

        self.value, self.hessian = jax.jit(jax.value_and_grad(share)), jax.jit(jax.hessian(share))

    def expand(self, shard, theta):
        value, gradient = self.value(theta, shard)
        return Expansion(
            float(value), np.asarray(gradient), -np.asarray(self.hessian(theta, shard))
        )


def dose_response(dose, effect):
    """effect = e0 + emax dose / (ed50 + dose) + noise"""
    e0 = numpyro.sample("e0", dist.Normal(0.0, 10.0))
    emax = numpyro.sample("emax", dist.Normal(0.0, 10.0))
    ed50 = numpyro.sample("ed50", dist.LogNormal(0.0, 1.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(5.0))
    with numpyro.plate("rows", len(dose)):
        numpyro.sample("effect", dist.Normal(e0 + emax * dose / (ed50 + dose), sigma), obs=effect)


rng = np.random.default_rng(0)
shards = []
for n in (40, 15, 80):  # three clinics
    dose = rng.uniform(0.0, 4.0, n)
    shards.append((dose, 1.0 + 5.0 * dose / (0.8 + dose) + 0.5 * rng.normal(size=n)))

model = NumpyroModel(dose_response, shards[0], n_nodes=3)
clinics = infer(model, shards, Network.chain(3), tol=1e-8)
rows = tuple(np.concatenate(parts) for parts in zip(*shards))
pooled = infer(NumpyroModel(dose_response, rows, n_nodes=1), [rows], tol=1e-8)
assert clinics.posterior.distance(pooled.posterior) < 1e-9

mean, variance = clinics.posterior.mean_value(), clinics.posterior.variance()
print(model.names(mean))  # unconstrained: ed50 and sigma by their logarithms
print(clinics.posterior.sample(3, random_state=0))
