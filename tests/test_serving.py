"""The server of the documentation, asked by several threads."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

from lexppl import explain, load
from lexppl.cli import main
from lexppl.data import TableEncoding
from tests.test_docs import blocks

pytest.importorskip("fastapi", reason="fastapi is not installed")
client = pytest.importorskip("fastapi.testclient", reason="httpx is not installed")


def test_threads_are_answered_as_explain_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draws = np.random.default_rng(0)
    table = pd.DataFrame(draws.normal(size=(80, 3)), columns=["age", "dose", "weight"])
    table["ward"] = draws.choice(["a", "b"], 80)
    table.assign(y=table["age"] > 0).to_csv("table.csv", index=False)
    words = "explain table.csv --target y --out explanation --epochs 2 --replicates 2 --quiet"
    assert main(words.split()) == 0
    ((_, program),) = blocks("serving.md")
    names = {}
    exec(compile(program, "server.py", "exec"), names)
    rows = table.to_dict("records")
    with client.TestClient(names["app"]) as server, ThreadPoolExecutor(8) as pool:
        penalties = [None, 0.01, 0.03]

        def answer(number):
            penalty = penalties[number % 3]
            query = {} if penalty is None else {"penalty": penalty}
            return server.post("/explain", json=rows[number], params=query).json()

        found = list(pool.map(answer, range(40)))
        refused = server.post("/explain", json={**rows[0], "ward": 3.5, "age": "old"})
        outside = server.post("/explain", json=rows[0], params={"penalty": 9.0})
    assert (refused.status_code, outside.status_code) == (422, 422)
    assert "age" in refused.json()["detail"] and "outside" in outside.json()["detail"]
    explainer, x = load("explanation/explainer"), TableEncoding.load("explanation/encoding.json")
    for number, one in enumerate(found):
        known = explain(
            explainer, x.encode(table.iloc[[number]]), draws=0, penalty=penalties[number % 3]
        )
        kept = known["sample_stats"]["selection_probability"].mean("chain")[0]
        assert one == dict(zip(kept["feature"].values.tolist(), kept.values.tolist(), strict=True))
