"""Paired training runs of several configs and their comparison, for ``tools/compare.py``."""
