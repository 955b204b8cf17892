"""`lexppl explain` and `compare` say whether the choice of features encodes the answer."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from lexppl.cli import main
from lexppl.data.divided_table import divided_frame
from lexppl.evaluation.encode_meter import EncodeMeter
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.evaluation.prediction import LEAST_RARE
from lexppl.models import BernoulliSelector
from lexppl.report.results.encoded_choice import LEAST_ROWS, QUESTION, EncodedChoice, encoded_choice
from lexppl.report.results.gains import FittedTable
from lexppl.systems.fit_plan import plan_for
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.table_fit import fit_table
from tests.cli.tables import explained, numbers, page_of, people, written
from tests.refusals import over

SHORT = ["--epochs", "3", "--replicates", "1", "--draws", "5", "--quiet", "--penalty", "0.02"]


def meter(value, half):
    return EncodeMeter(value, value - half, value + half, -0.6, -0.6 + value, torch.zeros(1))


@over(
    (0.12, 0.04, "Yes: that a feature was kept, whatever it holds, encodes 0.120 nats a row "),
    (0.005, 0.01, "No sign of it: which features are kept encodes 0.005 nats a row (95 % "),
    (0.03, 0.05, "Too few rows to say: which features are kept may encode up to 0.080 nats"),
    (0.004, 0.003, "No sign of it"),
    (0.03, 0.01, "Too few rows to say"),
)
def test_the_three_answers(value, half, said):
    told = EncodedChoice(meter(value, half), 400, -0.7, "price", "constant")
    assert told.answer().startswith(said)
    assert "400 held-out rows" in told.answer()
    assert told.alarm == said.startswith("Yes")
    assert len(told.warnings()) == told.alarm
    if told.alarm:
        assert "of price, of the 0.220 that values and choice tell together" in told.answer()
        assert "a constant here" in told.warnings()[0]


def test_what_was_not_asked_is_not_told():
    assert EncodedChoice().answer() is None
    assert EncodedChoice().warnings() == []
    few = EncodedChoice(rows=80)
    rows = "80 held-out rows of one fit"
    assert few.answer() == f"Too few rows to say: {rows}, and it takes {LEAST_ROWS}."
    rare = EncodedChoice(rows=400, rare=LEAST_RARE - 1)
    assert "of 400 held-out rows of one fit 19 have another label" in rare.answer()
    assert EncodedChoice(rows=400, rare=LEAST_RARE).answer() is None


def test_few_positives_are_not_asked_and_end_nothing():
    draws = np.random.default_rng(0)
    frame = pd.DataFrame(draws.normal(size=(1500, 4)), columns=list("abcd"))
    frame["outcome"] = np.where(np.arange(1500) < 30, "yes", "no")
    rare = asked(divided_frame(frame, valid_share=0.2, test_share=0.2, seed=0))
    assert rare.meter is None
    assert rare.rare == 6


class ByTheAnswer(nn.Module):
    """Keeps c where a is positive and d elsewhere, and neither a nor b."""

    def forward(self, x):
        told = 20.0 * x[..., :1].sign()
        off = torch.full_like(told, -20.0)
        return torch.cat([off, off, told, -told], -1)


@pytest.fixture(scope="module")
def table():
    draws = np.random.default_rng(0)
    frame = pd.DataFrame(draws.normal(size=(1500, 4)), columns=list("abcd"))
    frame["outcome"] = np.where(frame.a + 0.5 * draws.normal(size=1500) > 0, "yes", "no")
    return divided_frame(frame, valid_share=0.2, test_share=0.2, seed=0)


def asked(table, network=None):
    plan = plan_for(900, 4, epochs=1, replicates=2, penalty=0.02, hidden=(8,))
    rows = EncodedRows.of(table.data, table.train_rows, table.valid_rows)
    fit = fit_table(plan, rows)
    if network is not None:
        fit.result.models[fit.result.best].selector = BernoulliSelector(network)
    groups = FeatureGroups.alone(table.data.entry_names)
    return encoded_choice(FittedTable(fit, table, groups))


@pytest.mark.complete
def test_a_choice_by_the_answer_is_told_and_one_by_lot_is_not(table):
    cheat, honest = asked(table, ByTheAnswer()), asked(table)
    assert cheat.rows == honest.rows == 300
    assert cheat.alarm
    assert cheat.meter.value > 0.2
    assert "Yes" in cheat.answer() and "marginal" not in cheat.answer()
    assert not honest.alarm
    assert "No sign of it" in honest.answer() or "Too few rows" in honest.answer()


@pytest.mark.complete
@pytest.mark.parametrize(("rows", "make"), [(300, people), (1000, numbers)])
def test_it_stands_in_the_terminal_and_on_the_page(tmp_path, capsys, rows, make):
    page = page_of(explained(tmp_path, *SHORT, frame=make(rows)))
    told = " ".join(capsys.readouterr().out.split())
    assert f"<h2>{QUESTION}</h2>" in page
    answer = told.partition(QUESTION)[2].partition(" Written to ")[0].strip()
    assert answer and f"<p>{answer}</p>" in page
    assert answer.startswith("Too few rows to say: 60 held-out rows") == (rows == 300)


def test_compare_has_a_column_where_it_is_asked_for(tmp_path, capsys):
    table = str(written(people(250), tmp_path))
    words = ["compare", table, "--methods", "l2x", "--sizes", "1", "--epochs", "2", "--quiet"]
    assert main([*words, "--leaks"]) == 0
    assert "encoded@1" in capsys.readouterr().out
    assert main(words) == 0
    assert "encoded" not in capsys.readouterr().out


def test_compare_refuses_few_of_a_label_before_any_work(tmp_path, capsys):
    table = people(900)
    target = table.columns[-1]
    common = table[target].mode()[0]
    few = table[table[target] != common].head(35)
    rest = table[table[target] == common]
    path = str(written(pd.concat([few, rest]).sample(frac=1.0, random_state=0), tmp_path))
    assert main(["compare", path, "--methods", "l2x", "--sizes", "1", "--leaks"]) == 1
    told = capsys.readouterr().err
    assert "the held-out target, which --leaks asks, has 7" in told
    assert "fitting" not in told
