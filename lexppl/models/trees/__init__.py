"""A predictor of every subset of a table's columns, fitted in one go: boosted trees."""

from lexppl.models.trees.boosted_trees import BoostedTrees
from lexppl.models.trees.columns import table_columns
from lexppl.models.trees.tree_predictor import TreePredictor, tree_predictor

__all__ = [
    "BoostedTrees",
    "TreePredictor",
    "table_columns",
    "tree_predictor",
]
