"""Data sets: synthetic ones with known truth, shipped ones, tables from files."""

from lexppl.choices.data_sets import shipped_names, synthetic_names
from lexppl.data.dataset import Dataset
from lexppl.data.divided_table import DividedTable, divided_frame, divided_set
from lexppl.data.encoding import (
    CategoricalColumn,
    NumericColumn,
    TableEncoding,
    TargetColumn,
)
from lexppl.data.ranked_sets import ranked_names, ranked_set
from lexppl.data.shipped import load
from lexppl.data.synthetic import (
    AdditiveBranch,
    ProductBranch,
    SyntheticSet,
    synthetic,
    synthetic_set,
)
from lexppl.data.table_files import read_frame
from lexppl.data.tables import dataset_from_frame, read_table

__all__ = [
    "AdditiveBranch",
    "CategoricalColumn",
    "Dataset",
    "DividedTable",
    "NumericColumn",
    "ProductBranch",
    "SyntheticSet",
    "TableEncoding",
    "TargetColumn",
    "dataset_from_frame",
    "divided_frame",
    "divided_set",
    "load",
    "ranked_names",
    "ranked_set",
    "read_frame",
    "read_table",
    "shipped_names",
    "synthetic",
    "synthetic_names",
    "synthetic_set",
]
