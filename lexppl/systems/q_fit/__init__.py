"""Q-FIT, and the divergence between its explanations."""

from lexppl.systems.q_fit.importance_divergence import importance_divergence
from lexppl.systems.q_fit.system import DirichletGuide, GlobalImportance, q_fit

__all__ = ["DirichletGuide", "GlobalImportance", "importance_divergence", "q_fit"]
