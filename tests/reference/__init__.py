"""Slow, independent oracles that the package is tested against."""
