"""Files: fitted models, checkpoints, and writes that are whole or not at all."""

from dmfvi.storage.models import FILE_NAME, details, load, save

__all__ = ["FILE_NAME", "details", "load", "save"]
