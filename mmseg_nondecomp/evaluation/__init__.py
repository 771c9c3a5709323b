"""Any torchmetrics metric as an evaluator of MMEngine. Importing it needs MMEngine."""

from mmseg_nondecomp.evaluation.torch_metrics_evaluator import TorchMetricsEvaluator

__all__ = ['TorchMetricsEvaluator']
