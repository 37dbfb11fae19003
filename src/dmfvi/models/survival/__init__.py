"""Times until an event, some of them censored: piecewise exponential and Cox regression, Kaplan-Meier curves."""
