"""S-measures: the problem of a measure, bounds on its rates, the dual variables, and the projection."""

from mmseg_nondecomp.functional.s_measures.problem import RateProblem, rate_problem
from mmseg_nondecomp.functional.s_measures.projection import project_tau
from mmseg_nondecomp.functional.s_measures.soft_projection import soft_project_tau

__all__ = ['RateProblem', 'project_tau', 'rate_problem', 'soft_project_tau']
