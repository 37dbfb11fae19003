"""The examples of docs/regression.md, in their order."""
# ruff: noqa

import numpy as np
from dmfvi import GeneralizedLinearModel, Network

rng = np.random.default_rng(0)
x = [rng.normal(size=(n, 2)) for n in (30, 50, 20)]  # one array per site
events = [rng.poisson(np.exp(0.8 * rows[:, 0])) for rows in x]
years = [rng.uniform(0.5, 2.0, len(rows)) for rows in x]
model = GeneralizedLinearModel(family="poisson", network=Network.ring(3))
model.fit(x, events, exposure=years)
print(model.summary())
low, high = model.predict_interval(x[0], level=0.9)  # of the expected count in one year


import pandas as pd
from dmfvi import BayesianLogisticRegression

site_a = pd.DataFrame(
    {"died": ["no", "yes", "no", "no", "yes"], "age": [41, 77, 52, None, 68], "ward": list("eeewe")}
)
site_b = pd.DataFrame(
    {"died": ["no", "no", "yes", "no"], "age": [33, 58, 81, 49], "ward": list("enwn")}
)
model = BayesianLogisticRegression(formula="died ~ age + C(ward)", network=Network.chain(2))
model.fit([site_a, site_b])
print(model.summary())  # 1 row with missing cells dropped; terms age, C(ward)[T.n], C(ward)[T.w]
chances = model.predict_proba(site_b)


from dmfvi import BayesianLinearRegression, BayesianPCA

whole = pd.DataFrame(rng.normal(size=(80, 3)), columns=["age", "dose", "pressure"])
whole["pressure"] += 0.5 * whole.dose
whole = whole.mask(rng.random(whole.shape) < 0.15)
draws = BayesianPCA(2, noise="feature").fit(whole).impute(whole, n_draws=20, random_state=0)
tables = [pd.DataFrame(draw, columns=whole.columns) for draw in draws]
fits = [BayesianLinearRegression(formula="pressure ~ age + dose").fit(table) for table in tables]
estimates = np.array([fit.coef_ for fit in fits])
within = np.mean([np.diag(fit.coef_covariance_)[:2] for fit in fits], axis=0)
deviations = np.sqrt(within + (1 + 1 / len(fits)) * estimates.var(axis=0, ddof=1))
print(estimates.mean(axis=0), deviations)


from dmfvi import CoxRegression, KaplanMeier, PiecewiseExponentialRegression

hospitals = []
for n in (60, 80, 50):  # one frame per site
    frame = pd.DataFrame({"age": rng.uniform(40, 80, n), "sex": rng.choice(["f", "m"], n)})
    frame["days"] = 300 * rng.exponential(np.exp(-0.03 * (frame.age - 60)))
    frame["died"] = rng.random(n) < 0.7
    hospitals.append(frame)
ring = Network.ring(3)
cox = CoxRegression(formula="~ age + C(sex)", network=ring).fit(
    hospitals, time="days", event="died"
)
print(cox.summary())  # hazard ratios
hazards = PiecewiseExponentialRegression(
    formula="~ age + C(sex)", time_varying=("age",), n_intervals=3, network=ring
)
hazards.fit(hospitals, time="days", event="died")
low, high = hazards.predict_survival_function(hospitals[0].head(2), [100, 365], level=0.9)
curve = KaplanMeier(network=ring).fit(
    [f[["days", "died"]].to_numpy(dtype=float) for f in hospitals]
)
print(curve.median_survival_time_)


from dmfvi import MixedModel

for frame in hospitals:
    frame["ward"] = rng.integers(5, size=len(frame))
    frame["falls"] = rng.poisson(np.exp(0.02 * (frame.age - 60) + 0.1 * frame.ward))
mixed = MixedModel(
    formula="falls ~ age + C(sex)",
    family="poisson",
    random_slopes=("age",),
    network=ring,
    nested=True,  # ward 1 of one hospital is not ward 1 of another
)
mixed.fit(hospitals, groups="ward")
print(mixed.summary())  # coefficients, and deviations of the wards' intercepts and slopes
own = mixed.random_effects(site=0)  # shrunken effects of the first site's wards
