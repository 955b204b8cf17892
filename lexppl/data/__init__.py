"""Data sets: synthetic ones with known truth, shipped ones, tables, images and texts from files."""

from lexppl.data.dataset import Dataset
from lexppl.data.encoding import TableEncoding
from lexppl.data.images import divided_folder
from lexppl.data.named_sets import image_set, load, mnist
from lexppl.data.parquet import ParquetRows
from lexppl.data.problems import TableError, with_decisions
from lexppl.data.synthetic import (
    AdditiveBranch,
    ProductBranch,
    SimulatedSurvival,
    SyntheticSet,
    synthetic,
    synthetic_survival,
)
from lexppl.data.tables import dataset_from_frame, read_table
from lexppl.data.texts import Vocabulary, encoded_texts, imdb, texts_of

__all__ = [
    "AdditiveBranch",
    "Dataset",
    "ParquetRows",
    "ProductBranch",
    "SimulatedSurvival",
    "SyntheticSet",
    "TableEncoding",
    "TableError",
    "Vocabulary",
    "dataset_from_frame",
    "divided_folder",
    "encoded_texts",
    "image_set",
    "imdb",
    "load",
    "mnist",
    "read_table",
    "synthetic",
    "synthetic_survival",
    "texts_of",
    "with_decisions",
]
