"""Losses of this package in the training loops of other frameworks: one module for each, imported only by its users."""
