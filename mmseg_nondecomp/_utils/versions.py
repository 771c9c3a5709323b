"""Differences between versions of torch."""

import torch

is_compiling = torch.compiler.is_compiling if torch.__version__ >= '2.3' else torch._utils.is_compiling
"""Whether a graph is being traced."""
