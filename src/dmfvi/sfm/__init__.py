"""Structure from motion: tracks in, structure with uncertainty out."""

from dmfvi.sfm.structure_from_motion import StructureFromMotion

__all__ = ["StructureFromMotion"]
