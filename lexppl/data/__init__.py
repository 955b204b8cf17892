"""Data sets: synthetic ones with known truth, shipped ones, tables, images and texts from files."""

from lexppl.choices.data_sets import image_names, shipped_names, synthetic_names
from lexppl.data.columns import CategoricalColumn, DateColumn, IndicatorColumn, NumericColumn
from lexppl.data.dataset import Dataset
from lexppl.data.divided_table import DividedTable, divided_frame, divided_set
from lexppl.data.encoding import TableEncoding, TargetColumn
from lexppl.data.files import FileFormat, read_frame
from lexppl.data.images import DividedImages, ImageDataset, divided_folder
from lexppl.data.named_sets import fashion_mnist, image_set, load, mnist, switching_panels
from lexppl.data.parquet import ParquetRows, ParquetTable
from lexppl.data.problems import TableError
from lexppl.data.synthetic import (
    AdditiveBranch,
    ProductBranch,
    SimulatedSurvival,
    SyntheticSet,
    synthetic,
    synthetic_set,
    synthetic_survival,
)
from lexppl.data.tables import TableReading, dataset_from_frame, read_table
from lexppl.data.texts import TextDataset, Vocabulary, encoded_texts, imdb, texts_of

__all__ = [
    "AdditiveBranch",
    "CategoricalColumn",
    "Dataset",
    "DateColumn",
    "DividedImages",
    "DividedTable",
    "FileFormat",
    "ImageDataset",
    "IndicatorColumn",
    "NumericColumn",
    "ParquetRows",
    "ParquetTable",
    "ProductBranch",
    "SimulatedSurvival",
    "SyntheticSet",
    "TableEncoding",
    "TableError",
    "TableReading",
    "TargetColumn",
    "TextDataset",
    "Vocabulary",
    "dataset_from_frame",
    "divided_folder",
    "divided_frame",
    "divided_set",
    "encoded_texts",
    "fashion_mnist",
    "image_names",
    "image_set",
    "imdb",
    "load",
    "mnist",
    "read_frame",
    "read_table",
    "shipped_names",
    "switching_panels",
    "synthetic",
    "synthetic_names",
    "synthetic_set",
    "synthetic_survival",
    "texts_of",
]
