"""The posterior file, as a statistician without lexppl reads it."""

import subprocess
import sys

import arviz
import numpy as np
import pytest

from lexppl.arviz_compatibility import group_names, group_of
from lexppl.cli import main
from lexppl.report.results.scores import Judgement
from lexppl.report.results.single_rows import Details
from tests.cli.tables import numbers, people, written

QUICK = ["--epochs", "3", "--replicates", "2", "--draws", "30", "--quiet"]
QUICK += ["--penalty", "0.01", "--predictor", "network"]

READ = """
import sys, warnings

sys.modules["lexppl"] = None  # importing it is an error
warnings.simplefilter("ignore")
import matplotlib

matplotlib.use("Agg")
import arviz as az
import numpy as np

first, second = (az.from_netcdf(path) for path in sys.argv[1:])


def group(posterior, name):
    found = posterior[name]
    return found.to_dataset() if hasattr(found, "to_dataset") else found


def total(elpd):
    return float(getattr(elpd, "elpd_loo", getattr(elpd, "elpd", None)))


names = list(group(first, "posterior")["feature"].values)
for of in ("posterior", "predictions"):
    summary = az.summary(first, var_names=["importance"], group=of)
    assert list(summary.index) == [f"importance[{name}]" for name in names]
    means = group(first, of)["importance"].mean(("chain", "draw")).values
    assert np.allclose(summary["mean"].astype(float), means, atol=0.006)
az.plot_forest(first, var_names=["importance"])
az.plot_rank(first, var_names=["importance"])
scores = []
for posterior in (first, second):
    evidence = group(posterior, "sample_stats")["log_evidence"].values.astype(float)
    scores.append(np.log(np.exp(evidence).mean(0)).sum())
    assert abs(total(az.loo(posterior)) - scores[-1]) < 1e-3, "loo is no held-out log score"
table = az.compare({"first": first, "second": second})
best = "first" if scores[0] > scores[1] else "second"
assert table.index[0] == best
difference = np.abs(table["elpd_diff"].astype(float)).max()
assert abs(difference - abs(scores[0] - scores[1])) < 0.6, "ArviZ 1.x rounds to whole nats"
try:
    import lexppl
except ImportError:
    print("read without lexppl")
"""


@pytest.fixture
def no_report(monkeypatch):
    monkeypatch.setattr("lexppl.report.page.write_report", lambda *_: None)
    monkeypatch.setattr("lexppl.report.report.Report.judged", lambda *_: (Judgement(()), None))
    monkeypatch.setattr("lexppl.cli.explain_command.print_report", lambda *_: None)
    monkeypatch.setattr("lexppl.report.report.Report.gains", lambda *_: None)
    monkeypatch.setattr("lexppl.report.report.Report._details", lambda *_: Details())


@pytest.mark.complete
@pytest.mark.parametrize("frame", [people(), numbers()], ids=["classes", "numbers"])
def test_plain_arviz_reads_and_compares_two_explainers(tmp_path, no_report, frame):
    table = written(frame, tmp_path)
    files = []
    for epochs in ("3", "12"):
        out = tmp_path / epochs
        words = [*QUICK, "--epochs", epochs]
        assert main(["explain", str(table), "--out", str(out), *words]) == 0
        files.append(str(out / "posterior.nc"))
    done = subprocess.run(
        [sys.executable, "-c", READ, *files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "read without lexppl"
    posterior = arviz.from_netcdf(files[0])
    assert {"predictions", "posterior", "log_likelihood", "observed_data"} <= set(
        group_names(posterior)
    )
    if "price" in frame:
        observed = group_of(posterior, "observed_data")["y"].values
        assert set(np.round(observed)) <= set(np.round(frame["price"]))
