"""Quotes that swallow rows, which are named by their line, and cells of several lines, which are
read."""

import csv
import gzip
import io
import warnings

import numpy as np
import pytest

from lexppl.data.files import read_frame
from tests.refusals import over, refused

ROWS = 60
SEPARATORS = {",": ("csv", {}), ";": ("csv", {}), "\t": ("tsv", {}), "|": ("csv", {}),
              " ": ("csv", {"separator": r"\s+"})}  # fmt: skip


def lines_of(cells, separator=","):
    """A header and rows of a number, what `cells` gives, and a label."""
    rows = [(str(i % 7), cells(i), str(i % 2)) for i in range(ROWS)]
    return [separator.join(row) for row in [("n", "part", "y"), *rows]]


def written(tmp_path, lines, ending="csv", end="\n"):
    file = tmp_path / f"t.{ending}"
    content = (end.join(lines) + end).encode()
    file.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    return file


def quoted_at(first, last, behind=False):
    """Cells of which two have a quote: before both, or behind the last."""

    def cell(i):
        word = f"pipe{i % 3}"
        if i == last and behind:
            return f'{word}"'
        return f'"{word}' if i in (first, last) else word

    return cell


@pytest.mark.smoke
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("separator", SEPARATORS)
def test_a_quote_that_ends_lines_later_is_named(tmp_path, separator, end):
    ending, how = SEPARATORS[separator]
    file = written(tmp_path, lines_of(quoted_at(10, 40), separator), ending, end)
    message = "quote opens in line 12 ends in line 42, before other words; leave the quote out"
    refused(message, read_frame, file, **how)
    # Before a separator it could be a text.
    for last in (11, 40):
        file = written(tmp_path, lines_of(quoted_at(10, last, True), separator), ending, end)
        with pytest.warns(UserWarning, match=rf"in line 12 ends in line {last + 2}, and its lines"):
            assert len(read_frame(file, **how)) == ROWS - (last - 10)


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_a_quote_that_never_ends_is_named(tmp_path, ending):
    for first in (0, 10, ROWS - 1):
        file = written(tmp_path, lines_of(quoted_at(first, ROWS)), ending)
        refused(f"opens in line {first + 2} never ends", read_frame, file)
    refused("in line 12 ends in line 42", read_frame,
            written(tmp_path, lines_of(quoted_at(10, 40)), ending))  # fmt: skip


def test_rows_with_rare_cells_are_rows(tmp_path):
    lines = lines_of(quoted_at(10, 40, True))
    lines[20:26] = ["?,strange,1", ",pipe1,0", "3,,1", "-9.5e3,other,0", "4,pipe2,", "5,x,1"]
    with pytest.warns(UserWarning, match="in line 12 ends in line 42, and its lines look like"):
        read_frame(written(tmp_path, lines))


@pytest.mark.parametrize("place", [0, 2])
def test_quotes_of_other_columns(tmp_path, place):
    lines = [line.split(",") for line in lines_of(lambda i: f"pipe {i % 3}")]
    lines[21][place], lines[31][2] = f'"{lines[21][place]}', f'{lines[31][2]}"'
    with pytest.warns(UserWarning, match="in line 22 ends in line 32, and its lines look like"):
        read_frame(written(tmp_path, map(",".join, lines)))


@pytest.mark.parametrize("header", ['"n,part,y', 'n,"part,y', 'n,part,"y'])
def test_quotes_of_the_header(tmp_path, header):
    lines = lines_of(lambda i: "pipe")
    refused("opens in line 1 never ends", read_frame, written(tmp_path, [header, *lines[1:]]))
    lines[25] = lines[25].replace("pipe", 'pipe"')
    file = written(tmp_path, [header, *lines[1:]])
    refused("in line 1 ends in line 26, and its lines look like rows", read_frame, file)


@over(('{}" pipe', '{}" pipe'), ('pipe {}"', 'pipe {}"'), ('"{}"" pipe"', '{}" pipe'),
     ('"pipe, {}"""', 'pipe, {}"'), ('"{}"', "{}"), ("it's {}'", "it's {}'"))  # fmt: skip
def test_quotes_within_words_are_read(cell, value, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = read_frame(written(tmp_path, lines_of(lambda i: cell.format(i % 5))))
    assert frame["part"].tolist() == [
        int(i % 5) if value == "{}" else value.format(i % 5) for i in range(ROWS)
    ]


def test_quotes_that_are_not_doubled_are_named(tmp_path):
    file = written(tmp_path, lines_of(lambda i: f'"pipe {i % 5}""'))
    refused("opens in line 2 ends in line 3, before other words", read_frame, file)


def texts(rows):
    """Texts of one to four lines, with commas, quotes and numbers."""
    draw = np.random.default_rng(0)
    words = ["a", "film", "great,", "and", "dull;", "but:", "10", "3.5", '"fine"', 'said "no",']
    for _ in range(rows):
        lines = [
            " ".join(draw.choice(words, draw.integers(1, 6))) for _ in range(draw.integers(1, 5))
        ]
        yield "\n".join(lines)


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
@pytest.mark.parametrize("order", ["text id label", "id text label", "id label text", "label text"])
def test_texts_of_several_lines_are_read_without_a_warning(tmp_path, order, quoting):
    expected = [
        {"id": i, "label": ("good", "bad")[i % 2], "text": text}
        for i, text in enumerate(texts(400))
    ]
    names = order.split()
    held = io.StringIO()
    writer = csv.writer(held, quoting=quoting)
    writer.writerows([names, *([row[name] for name in names] for row in expected)])
    file = tmp_path / "t.csv"
    file.write_bytes(held.getvalue().encode())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = read_frame(file)
    assert frame["text"].str.replace("\r\n", "\n").tolist() == [row["text"] for row in expected]


def test_a_header_of_two_lines_is_read(tmp_path):
    file = written(tmp_path, ['n,"part\n(of, which)",y', *lines_of(lambda i: "pipe")[1:]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(read_frame(file)) == ["n", "part\n(of, which)", "y"]
