"""A folder of Parquet files is one table of numbered rows."""

import numpy as np
import pandas as pd
import pytest

from lexppl.data.parquet import ParquetTable
from lexppl.fingerprint import fingerprint
from tests.refusals import over, refused

ROWS = 230


@pytest.fixture
def folder(tmp_path):
    """Files whose names are not in the order of their letters, of row groups of several sizes."""
    frame = pd.DataFrame({"number": np.arange(ROWS), "word": np.arange(ROWS).astype(str)})
    for place, (start, stop, size) in enumerate([(0, 90, 40), (90, 91, 7), (91, 230, 50)]):
        name = f"part.{(0, 2, 10)[place]}.parquet"
        frame[start:stop].to_parquet(tmp_path / name, row_group_size=size, index=False)
    (tmp_path / "_metadata").write_text("none")
    (tmp_path / ".hidden.parquet").write_text("none")
    return tmp_path


@pytest.mark.smoke
@over((0, 230), (0, 1), (39, 41), (89, 92), (100, 230), (229, 400), (95, 95))
def test_any_range_of_rows_is_read(start, stop, folder):
    table = ParquetTable(folder)
    assert len(table) == ROWS
    if stop > start:
        assert table.read(start, stop)["number"].tolist() == list(range(start, min(stop, ROWS)))


def test_other_files_are_another_table(folder):
    before = fingerprint(ParquetTable(folder))
    assert fingerprint(ParquetTable(folder)) == before
    assert fingerprint(ParquetTable(folder, ["word"])) != before
    pd.DataFrame({"number": [1], "word": ["a"]}).to_parquet(folder / "part.2.parquet")
    assert fingerprint(ParquetTable(folder)) != before


def test_what_is_no_table_is_refused(folder, tmp_path):
    refused("no file or folder", ParquetTable, tmp_path / "nowhere", error=FileNotFoundError)
    refused(r"part\.0\.parquet lacks 'height'", ParquetTable, folder, ["height"])
    refused("must be a list of names", ParquetTable, folder, "word")
    (folder / "spoilt.parquet").write_text("none")
    refused(r"spoilt\.parquet' cannot be read as Parquet", ParquetTable, folder)
    empty = tmp_path / "empty"
    empty.mkdir()
    refused("no Parquet file", ParquetTable, empty, error=FileNotFoundError)
    told = empty / "year=2020"
    told.mkdir()
    pd.DataFrame({"a": [1]}).to_parquet(told / "a.parquet")
    refused("folders that hold a column, 'year=2020'", ParquetTable, empty)
