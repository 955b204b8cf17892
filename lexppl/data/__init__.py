"""Data sets: synthetic ones with known truth, shipped ones, tables from files."""

from lexppl.choices.data_sets import shipped_names, synthetic_names
from lexppl.data.columns import (
    CategoricalColumn,
    DateColumn,
    IndicatorColumn,
    NumericColumn,
)
from lexppl.data.dataset import Dataset
from lexppl.data.divided_table import DividedTable, divided_frame, divided_set
from lexppl.data.encoding import TableEncoding, TargetColumn
from lexppl.data.ranked_sets import ranked_names, ranked_set
from lexppl.data.reading.file_format import FileFormat
from lexppl.data.reading.table_error import TableError
from lexppl.data.shipped import load
from lexppl.data.survival import (
    SimulatedSurvival,
    load_survival,
    survival_names,
    synthetic_survival,
)
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
    "DateColumn",
    "DividedTable",
    "FileFormat",
    "IndicatorColumn",
    "NumericColumn",
    "ProductBranch",
    "SimulatedSurvival",
    "SyntheticSet",
    "TableEncoding",
    "TableError",
    "TargetColumn",
    "dataset_from_frame",
    "divided_frame",
    "divided_set",
    "load",
    "load_survival",
    "ranked_names",
    "ranked_set",
    "read_frame",
    "read_table",
    "shipped_names",
    "survival_names",
    "synthetic",
    "synthetic_names",
    "synthetic_set",
    "synthetic_survival",
]
