"""Structure from motion: tracks in, structure with uncertainty out."""
