"""Decisions for a measure at prediction."""
