"""Compiled inner loops, each with a plain NumPy twin that the tests compare it with."""
