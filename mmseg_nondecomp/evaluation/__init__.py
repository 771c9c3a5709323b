"""Evaluator of MMEngine for any torchmetrics metric. Importing it needs MMEngine."""

from mmseg_nondecomp.evaluation.torch_metrics_evaluator import TorchMetricsEvaluator

__all__ = ['TorchMetricsEvaluator']
