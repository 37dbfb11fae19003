"""dmfvi: exact decentralized mean-field variational inference."""

__version__ = "0.1.0"
