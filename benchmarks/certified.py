"""Certified masks against the oracle, and the risk of calibrated stops over calibration sets.

    python benchmarks/certified.py                     # all tables, seed 0
    python benchmarks/certified.py --sets S2 "breast cancer" --figures masks
    python benchmarks/certified.py --sets S1 correlated --figures anchors
    python benchmarks/certified.py --small             # to see that it runs

10,000 rows of S1, S2 and S3, 2,000 of a planted table, half of breast cancer's 569; α = ε = δ = .1,
level .9; within half a standard deviation of the predictions for the response. *masks*: 1,500 new
rows (the other half of breast cancer's); a(x, S) by 200 draws of their own for every size along a
row's order; the oracle is the first size from which on it is at least .9, and a row is covered
where its certified mask's is. *stop*: 500 new rows calibrate, drawn 500 times of 3,500, the others
have the risk; y is what the explainer predicts with every entry kept, by itself over 20
imputations. Sets that are refused have no risk, and their share is beside it. Of columns that are
independent the hidden values are redrawn from other rows: the risk of a choice that reads none of
them stays. Controls: the row's order, which the library refuses, and calibration rows of the upper
half of the surest. *anchors*, where asked for: rules of alibi's Anchors (`pip install spacy`,
`pip install --no-deps alibi`) at precision .9 for the labels that an explainer of the columns of
numbers predicts of 40 new rows, the precision that they claim, and the real one among those of
200,000 rows of the law on which a rule holds.
"""

import argparse
from functools import partial

import numpy as np
import pandas as pd
import torch
from planted_tables import TARGET, planted
from record import Records, options_of
from scipy.stats import binom
from sklearn.datasets import load_breast_cancer

from lexppl import ExplainerClassifier, ExplainerRegressor
from lexppl.data import synthetic
from lexppl.evaluation import calibrated_stop, certified_masks
from lexppl.evaluation.certified import THRESHOLDS, _stops
from lexppl.evaluation.evalx import EvalX
from lexppl.explanation.sampler import draws, read_prediction
from lexppl.inference import fit
from lexppl.systems import suwr

SETS = ("S1", "S2", "S3", "switch", "correlated", "regression", "breast cancer")
INDEPENDENT = ("S1", "S2", "S3", "switch")
STOPS = ("one order", "suwr", "row's order (control)", "shifted (control)")
SAME = ("figure", "set", "seed")
ALPHA = 0.1
IMPUTATIONS = 20  # Of the explainer's own program, which predicts from what is kept


def line(**record):
    numbers = {n: v for n, v in record.items() if isinstance(v, float) and "seconds" not in n}
    words = " ".join(f"{name} {value:.3f}" for name, value in numbers.items())
    return f"{record['set']} {record['seed']} {record['figure']:24s} {words}"


def tables_of(name, seed, rows, new):
    """Rows to fit and new ones, as a user has them."""
    if name in ("S1", "S2", "S3"):
        train, test = synthetic(name, rows or 10_000, seed), synthetic(name, new, 1000 + seed)
        return train.x.numpy(), train.y.numpy(), test.x.numpy()
    if name == "breast cancer":
        frame, y = load_breast_cancer(return_X_y=True, as_frame=True)
        place = np.random.default_rng(seed).permutation(len(frame))
        old, other = place[: len(place) // 2], place[len(place) // 2 :]
        return frame.iloc[old], y.iloc[old], frame.iloc[other]
    train = planted(name, rows or 2_000, seed).frame
    test = planted(name, rows or 2_000, seed, new=new).frame
    drop = [name for name in train if name in (TARGET, "row number")]
    return train.drop(columns=drop), train[TARGET], test.drop(columns=drop)


def predicted(result, x, masks, seed=0):
    """Predictions of the explainer's own program, `(L, N, …)`."""
    read = {"prediction": read_prediction}
    return draws(result, x, masks=masks, read=read, seed=seed)["prediction"].values[0]


def masks_record(result, x, within, trials):
    """Coverage and size of certified masks, with the oracle's."""
    found = certified_masks(result, x, alpha=ALPHA, within=within)
    place = result.order(x).flip(-1).argsort(-1)
    entries, at = place.shape[1], np.arange(len(x))
    full = predicted(result, x, torch.ones(1, len(x), entries))[0]
    shares = []
    for size in range(entries + 1):
        masks = (place < size).to(x).expand(trials, -1, -1)
        drawn = predicted(result, x, masks, seed=1 + size)
        if within is None:
            shares.append((drawn.argmax(-1) == full.argmax(-1)).mean(0))
        else:
            shares.append((np.abs(drawn - full) <= within).mean(0))
    enough = np.array(shares) >= 1 - ALPHA
    enough[-1] = True
    size = found["size"].values[0]
    return {
        "oracle": float(enough[::-1].cumprod(0)[::-1].argmax(0).mean()),
        "size": float(size.mean()),
        "coverage": float(enough[size, at].mean()),
        "calls": float(found.calls.mean()),
        "most_calls": int(found.calls.max()),
    }


def anchors_record(name, seed, small):
    """Sizes of Anchors' rules, and their precision: claimed, and real by rows of the law."""
    from alibi.explainers import AnchorTabular

    frame, y, law = tables_of(name, seed, 300 if small else None, 2_000 if small else 200_000)
    frame, law = (pd.DataFrame(rows).select_dtypes("number") for rows in (frame, law))
    names = [f"x{j}" for j in range(frame.shape[1])]  # For `eval`
    frame, law = frame.set_axis(names, axis=1), law.set_axis(names, axis=1)
    explainer = ExplainerClassifier("lex", random_state=seed, predictor="network")
    explainer.set_params(**{"epochs": 3} if small else {}).fit(frame, y)

    def labels_of(rows):
        x = explainer._encoded(pd.DataFrame(rows, columns=names), torch.float32)
        entries = len(explainer.entry_names_)
        return predicted(explainer.result_, x, torch.ones(1, len(x), entries))[0].argmax(-1)

    anchors = AnchorTabular(labels_of, names, seed=0).fit(frame.to_numpy())
    labels, sizes, claimed, real = labels_of(law), [], [], []
    for row, label in zip(law.to_numpy()[: 5 if small else 40], labels, strict=False):
        rule = anchors.explain(row, threshold=1 - ALPHA)
        holds = np.all([np.full(len(law), True), *(law.eval(part) for part in rule.anchor)], 0)
        sizes.append(len(rule.anchor))
        claimed.append(float(np.squeeze(rule.precision)))
        real.append(float((labels[holds] == label).mean()))
    return {
        "size": float(np.mean(sizes)),
        "claimed": float(np.mean(claimed)),
        "precision": float(np.mean(real)),
        "coverage": float((np.array(real) >= 1 - ALPHA).mean()),
    }


class Redrawn:
    """New rows with what the explainer predicts of them, and of their hidden values redrawn."""

    def __init__(self, result, x, independent):
        self.result, self.x, self.independent = result, x, independent
        self.entries = result.order(x[:2]).shape[1]
        self.labels = self.labels_of(x)

    def labels_of(self, x):
        return predicted(self.result, x, torch.ones(1, len(x), self.entries))[0].argmax(-1)

    def risk(self, masks, labels, seed=0):
        """How often other hidden values have another label; None of dependent columns."""
        if not self.independent:
            return None
        grouping = self.result.model.grouping
        keep = torch.as_tensor(masks).to(self.x)
        keep = keep if grouping is None else grouping(keep)
        place = torch.rand(keep.shape, generator=torch.Generator().manual_seed(seed)).argsort(0)
        if grouping is not None:  # Columns of an entry are redrawn together.
            drawn = torch.rand(len(keep), self.entries).argsort(0).float()
            place = grouping(drawn).long()
        other = torch.where(keep == 1, self.x, self.x.gather(0, place))
        return float((self.labels_of(other) != labels).mean())


def threshold_of(order, x, y, how, own):
    """The threshold that :func:`calibrated_stop` chooses by some rows; None where it refuses."""
    try:
        return calibrated_stop(order, x[own], y[own], **how).threshold
    except ValueError as error:
        if "are predicted otherwise than y" not in str(error):
            raise
        return None


def surest_first(confidence, labels, truth, own):
    """The same for an order that :func:`calibrated_stop` refuses."""
    accepted, at = None, np.arange(len(own))
    for threshold in THRESHOLDS:
        wrong = labels[:, own][_stops(confidence[:, own], threshold), at] != truth[own]
        if binom.cdf(wrong.sum(), len(own), ALPHA) > ALPHA:
            break
        accepted = threshold
    return accepted


def stop_record(rows, stop, calibrate, sets, calibration, seed, easy=False):
    """Risk and size of stops along an order, over calibration sets of which `calibrate` chooses a
    threshold, None where it refuses; of refusals the risk is unknown; their share is recorded."""
    place, confidence, labels = stop
    truth, at = rows.labels, np.arange(len(rows.x))
    generator, risks, kept, chosen = np.random.default_rng(seed), [], [], []
    pool = at if not easy else np.flatnonzero(confidence[-1] >= np.median(confidence[-1]))
    for _ in range(sets):
        own = generator.choice(pool, calibration, replace=False)
        threshold = calibrate(own)
        if threshold is None:
            continue
        size, others = _stops(confidence, threshold), np.setdiff1d(at, own)
        risks.append((labels[size, at] != truth)[others].mean())
        kept.append(size[others].mean())
        chosen.append(threshold)
    if not chosen:
        return {"refused": 1.0, "rows": len(at)}
    size = _stops(confidence, float(np.median(chosen)))
    redrawn = rows.risk(place < size[:, None], labels[size, at], seed)
    return {
        "risk": float(np.mean(risks)),
        "above": float((np.array(risks) > ALPHA).mean()),
        "size": float(np.mean(kept)),
        "refused": 1 - len(chosen) / sets,
        "real": float((labels[size, at] != truth).mean()),
        "redrawn": redrawn,
        "rows": len(at),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--figures", nargs="+", choices=("masks", *STOPS, "anchors"))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--calibrations", type=int, default=500)
    options = options_of(parser, small={"sets": ["S1"], "calibrations": 20})
    small = options.small
    records = Records("certified", SAME, line, options)
    cases = [(n, s) for s in range(options.seeds) for n in options.sets]
    asked = cases if "anchors" in (options.figures or ()) else []
    for run in records.due({"figure": "anchors", "set": n, "seed": s} for n, s in asked):
        with records.run(run) as record:
            record |= anchors_record(run["set"], run["seed"], small)
    for name, seed in cases:
        figures = ["masks"] if name in ("regression", "breast cancer") else ["masks", *STOPS]
        figures = [f for f in figures if options.figures is None or f in options.figures]
        due = records.due({"figure": f, "set": name, "seed": seed} for f in figures)
        if not due:
            continue
        new = 700 if small else 5_000
        frame, y, other = tables_of(name, seed, 300 if small else None, new)
        explainer = ExplainerRegressor if name == "regression" else ExplainerClassifier
        few = {"epochs": 3} if small else {}
        explainer = explainer("lex", random_state=seed, predictor="network", **few)
        explainer.fit(frame, y)
        result = explainer.result_
        train, x = (explainer._encoded(z, torch.float32) for z in (frame, other))
        checked, x = x[: 100 if small else 1_500], x[200 if small else 1_500 :]
        entries, within = len(explainer.entry_names_), None
        if name == "regression":
            full = predicted(result, checked, torch.ones(1, len(checked), entries))[0]
            within = 0.5 * float(full.std())
        stops = {}
        if any(run["figure"] != "masks" for run in due):
            rows = Redrawn(result, x, name in INDEPENDENT)
            learned = train, torch.as_tensor(rows.labels_of(train))
            grouping, epochs = result.model.grouping, 2 if small else 60
            how = {"valid": 0.2, "epochs": epochs, "batch_size": 200, "progress": False}
            judge = EvalX(result, entries)
            order = np.argsort(-explainer.feature_importances_)
            y_new = torch.as_tensor(rows.labels)
            lenient = {"predictor": judge, "imputations": IMPUTATIONS}
            stop = calibrated_stop(order, x, y_new, epsilon=0.5, **lenient)
            stops["one order"] = stops["shifted (control)"] = stop.along(x)
            orders = {"one order": order, "shifted (control)": order}
            path = result.order(x).flip(-1)
            along = [
                judge.predict(x, (path.argsort(-1) < t).to(x), imputations=IMPUTATIONS)[0].numpy()
                for t in range(entries + 1)
            ]
            p = np.stack(along)
            stops["row's order (control)"] = path.argsort(-1).numpy(), p.max(-1), p.argmax(-1)
            if any(run["figure"] == "suwr" for run in due):
                system = suwr(
                    x.shape[1], classes=int(learned[1].max()) + 1, grouping=grouping, penalty=0.001
                )
                steps = fit(system, learned, learning_rate=1e-3, seed=seed, **how)
                policy = calibrated_stop(steps, x, y_new, epsilon=0.5, **lenient)
                stops["suwr"], orders["suwr"] = policy.along(x), steps
        for run in due:
            with records.run(run) as record:
                if run["figure"] == "masks":
                    record |= masks_record(result, checked, within, 30 if small else 200)
                    continue
                figure = run["figure"]
                _, confidence, labels = stops[figure]
                calibrate = partial(surest_first, confidence, labels, rows.labels)
                if figure in orders:
                    calibrate = partial(threshold_of, orders[figure], x, y_new, lenient)
                sizes = {"sets": options.calibrations, "calibration": 200 if small else 500}
                easy = figure.startswith("shifted")
                record |= stop_record(rows, stops[figure], calibrate, seed=seed, easy=easy, **sizes)


if __name__ == "__main__":
    main()
