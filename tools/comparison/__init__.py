"""Paired trainings of several configs, and what tells them apart: the parts of ``tools/compare.py``."""
