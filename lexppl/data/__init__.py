"""Data sets: synthetic ones with known truth, shipped ones, tables, images and texts from files."""

from lexppl.choices.data_sets import image_names, shipped_names, synthetic_names
from lexppl.data.columns import (
    CategoricalColumn,
    DateColumn,
    IndicatorColumn,
    NumericColumn,
)
from lexppl.data.dataset import Dataset
from lexppl.data.divided_table import DividedTable, divided_frame, divided_set
from lexppl.data.encoding import TableEncoding, TargetColumn
from lexppl.data.images.by_name import image_set, pneumonia, switching_panels
from lexppl.data.images.celeba import celeba_smile
from lexppl.data.images.dataset import ImageDataset
from lexppl.data.images.divided_images import DividedImages
from lexppl.data.images.folder import divided_folder, image_folder
from lexppl.data.images.mnist import digits_pair, fashion_mnist, fashion_pair, mnist
from lexppl.data.parquet.parquet_rows import ParquetRows
from lexppl.data.parquet.parquet_table import ParquetTable
from lexppl.data.reading.file_format import FileFormat
from lexppl.data.reading.read_rows import TableError
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
from lexppl.data.texts import TextDataset, Vocabulary, encoded_texts, imdb, texts_of
from lexppl.data.three_way_switch import ThreeWaySwitch, three_way_switch

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
    "TargetColumn",
    "TextDataset",
    "ThreeWaySwitch",
    "Vocabulary",
    "celeba_smile",
    "dataset_from_frame",
    "digits_pair",
    "divided_folder",
    "divided_frame",
    "divided_set",
    "encoded_texts",
    "fashion_mnist",
    "fashion_pair",
    "image_folder",
    "image_names",
    "image_set",
    "imdb",
    "load",
    "load_survival",
    "mnist",
    "pneumonia",
    "read_frame",
    "read_table",
    "shipped_names",
    "survival_names",
    "switching_panels",
    "synthetic",
    "synthetic_names",
    "synthetic_set",
    "synthetic_survival",
    "texts_of",
    "three_way_switch",
]
