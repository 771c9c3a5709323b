"""Versions of torch, files and locks, progress."""
