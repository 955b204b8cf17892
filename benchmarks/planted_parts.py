"""Words and shapes that are known to decide the class: does `lexppl explain` find them?

    python benchmarks/planted_parts.py                   # every set, one seed
    python benchmarks/planted_parts.py --sets rare --seeds 5
    python benchmarks/planted_parts.py --small           # to see that it runs

A text is 8 to 20 words that say nothing, some frequent and some rare, and among them the words that
decide. *few*, *many*: one or two of three good or of three bad words in 85 of 100 texts, in 300 and
3,000 texts; in the other sets there are 1,500. *negation*: "clean" or "dirty", with "not" before it
in two texts of five, which turns it; "not" is also before words that say nothing. *pair*: of "red"
and "round" both or one, and good where both are there. *rare*: each of the six words in 3 of 100
texts. *classes*: three of them, with two words each. *script*: the words of *few* in Hindi, whose
vowel signs are marks. A share of .02 of the labels is drawn anew.

`found`: the words that the command says the verdict rests on; beside accuracy stand logistic
regression on the words that are there, and a network of twenty lines with a convolution.

*shapes 500*, *shapes 2000*: so many grey images of 24 × 24 with noise. A circle or a square, which
decides, is at a random place, and a cross or a bar, which does not, at another. Of patches that the
explainer keeps (probability above one half) in 1,000 new images, `fdr` is the share that holds none
of what decides, and `tpr` the share of patches a quarter full of it that are kept.
"""

import argparse
import csv
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np
import torch
from PIL import Image
from record import Records, options_of
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from torch import nn

from lexppl.cli.explain_rows import RowsRun
from lexppl.cli.program import parse
from lexppl.data import texts_of as data_of
from lexppl.evaluation import predictive
from lexppl.explanation import mask_means
from lexppl.explanation.explain import explanation_tree
from lexppl.explanation.reading.sentences import plain
from lexppl.report.results.scores import Judgement, judge_base_rate, judge_explainer, score_full
from lexppl.report.rows import ReportOfRows
from lexppl.report.sentences import first_screen

WORDS = """the room was near a pool and street we had it in for breakfast our with floor at of is
staff bed window they bus station lunch coffee river view lift garden two nights week to on city
market train morning table water light car park child family"""
WORDS_IN_HINDI = """कमरा था पास एक और सड़क हम को में के लिए नाश्ता हमारा साथ फर्श पर का है बिस्तर खिड़की
वे बस स्टेशन दोपहर कॉफ़ी नदी दृश्य बगीचा दो रातें सप्ताह से शहर बाज़ार ट्रेन सुबह मेज़ पानी रोशनी गाड़ी
बच्चा परिवार"""
NEUTRAL, NEUTRAL_IN_HINDI = WORDS.split(), WORDS_IN_HINDI.split()
GOOD, BAD = ("superb", "spotless", "friendly"), ("dirty", "rude", "broken")
HINDI = ("बढ़िया", "साफ़", "मिलनसार", "गंदा", "बदतमीज़", "टूटा")
SETS = {
    "few": (300, (*GOOD, *BAD)),
    "many": (3_000, (*GOOD, *BAD)),
    "negation": (1_500, ("clean", "dirty", "not")),
    "pair": (1_500, ("red", "round")),
    "rare": (1_500, (*GOOD, *BAD)),
    "classes": (1_500, ("superb", "spotless", "plain", "usual", "rude", "broken")),
    "script": (1_500, HINDI),
}
SHAPES = {"shapes 500": 500, "shapes 2000": 2_000}
SIDE, PATCH, NOISE = 24, 4, 0.15
WRONG, NEW = 0.02, 4_000  # Labels drawn anew; texts that are judged
SAME = ("set", "seed")


def line(**record):
    rates = f"TPR {record['tpr']:.2f}, FDR {record['fdr']:.2f}, accuracy {record['accuracy']:.3f}"
    rivals = f"network {record['network']:.3f}"
    if "logistic" in record:
        rivals += f", logistic {record['logistic']:.3f}"
    head = f"{record['set']} {record['seed']}: {rates} ({rivals}), {record['cpu_seconds']:.0f} s"
    return f"{head}\n  {record['sentence']}" if "sentence" in record else head


def texts_of(name, rows, rng):
    """Texts of a set, and their labels."""
    neutral = NEUTRAL_IN_HINDI if name == "script" else NEUTRAL
    share = 1.0 / np.arange(1, len(neutral) + 1) ** 0.7
    texts, labels = [], []
    for _ in range(rows):
        words = list(rng.choice(neutral, rng.integers(8, 21), p=share / share.sum()))
        planted, label, classes = _planted(name, rng)
        places = np.sort(rng.integers(0, len(words) + 1, len(planted)))[::-1]
        for place, phrase in zip(places, planted, strict=True):
            words[place:place] = phrase.split()
        if rng.random() < WRONG:
            label = classes[rng.integers(len(classes))]
        texts.append(" ".join(words))
        labels.append(label)
    return texts, labels


def _planted(name, rng):
    """Phrases that decide, the label, and all labels."""
    good = rng.random() < 0.5
    label, classes = ("good" if good else "bad"), ("bad", "good")
    if name == "negation":
        turned = rng.random() < 0.4
        phrases = [f"{'not ' if turned else ''}{'clean' if good != turned else 'dirty'}"]
        if rng.random() < 0.1:
            phrases.append(f"not {NEUTRAL[rng.integers(len(NEUTRAL))]}")
        return phrases, label, classes
    if name == "pair":
        phrases = ["red", "round"] if good else [["red"], ["round"], []][rng.choice(3)]
        return list(rng.permutation(phrases)), label, classes
    if name == "rare":
        said = [word for word in (GOOD if good else BAD) if rng.random() < 0.06]
        return said, label, classes
    if name == "classes":
        classes = ("bad", "fair", "good")
        place = rng.integers(3)
        pairs = (("rude", "broken"), ("plain", "usual"), ("superb", "spotless"))
        said = list(rng.choice(pairs[place], 1)) if rng.random() < 0.85 else []
        return said, classes[place], classes
    own = list(rng.choice(GOOD if good else BAD, rng.integers(1, 3), replace=False))
    own = own if rng.random() < 0.85 else []
    if name == "script":
        own = [HINDI[(*GOOD, *BAD).index(word)] for word in own]
    return own, label, classes


class Plain(nn.Module):
    """Vectors of words, a convolution and its maximum."""

    def __init__(self, words, classes):
        super().__init__()
        self.vectors = nn.Embedding(words, 32)
        self.convolution = nn.Conv1d(32, 64, 3, padding=1)
        self.last = nn.Linear(64, classes)

    def forward(self, x):
        return self.last(torch.relu(self.convolution(self.vectors(x).mT)).amax(-1))


def rivals(train, held, seed):
    """Accuracies of logistic regression on bags of words, and of a plain network."""
    words = CountVectorizer(token_pattern=r"\S+", binary=True).fit(train[0])
    logistic = LogisticRegression(max_iter=500).fit(words.transform(train[0]), train[1])
    labels, (x, y), (new, truth) = (
        sorted(set(train[1])),
        *(encoded(*p, words) for p in (train, held)),
    )
    torch.manual_seed(seed)
    network = Plain(len(words.vocabulary_) + 2, len(labels))
    optimizer = torch.optim.AdamW(network.parameters(), 5e-3)
    right = fitted_accuracy(network, optimizer, (x, y), (new, truth), steps=400, batch=100)
    return logistic.score(words.transform(held[0]), held[1]), right


def fitted_accuracy(network, optimizer, train, held, steps, batch):
    """Accuracy on held-out rows after so many steps of random batches."""
    (x, y), (new, truth) = train, held
    for _ in range(steps):
        rows = torch.randint(len(x), (batch,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x[rows]), y[rows]).backward()
        optimizer.step()
    with torch.no_grad():
        return float((network(new).argmax(1) == truth).double().mean())


def encoded(texts, labels, words):
    """Word numbers, 0 for none and 1 for an unknown one, and classes."""
    x = torch.zeros(len(texts), 40, dtype=torch.long)
    for row, text in enumerate(texts):
        numbers = [2 + words.vocabulary_.get(word, -1) for word in text.split()]
        x[row, : len(numbers)] = torch.tensor(numbers)
    classes = sorted(set(labels))
    return x, torch.tensor([classes.index(label) for label in labels])


class Kept(ReportOfRows):
    """A report without EVAL-X."""

    def judged(self):
        own = judge_explainer(self.result, self.source, self.plan.seed, self.masks)
        full = score_full(self.fit_full(), self.source)
        return Judgement((own, judge_base_rate(self.source), full)), None


def report_of(words):
    """A report without EVAL-X of what the command fits."""
    run = RowsRun(parse(words), words)
    run.read(torch.device("cpu"))
    return Kept(run.source, run.plan, **vars(run.options)).fit()


def explained(texts, labels, words, quick):
    """The explainer that the command fits to texts."""
    with TemporaryDirectory() as folder:
        table = Path(folder) / "texts.csv"
        with table.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "verdict"), *zip(texts, labels, strict=True)])
        command = ["explain", str(table), "--text", "text", "--target", "verdict", "--quiet"]
        command += ["--out", str(Path(folder) / "out"), "--rows", "10000", *words]
        command += ["--epochs", "1"] * quick
        return report_of(command)


def words_record(name, seed, rows=None, quick=False):
    """What is found in a set of texts, and how well it is predicted."""
    count, planted = SETS[name]
    count = rows or count
    rng = np.random.default_rng([seed, list(SETS).index(name)])
    texts, labels = texts_of(name, count, rng)
    new, truth = texts_of(name, NEW, rng)
    begun = process_time()
    run = explained(texts, labels, ["--seed", str(seed)], quick)
    shown = run.results()
    seconds = process_time() - begun
    data = run.source.train
    how = {"vocabulary": data.vocabulary, "class_names": data.class_names}
    held = data_of(new, truth, length=data.length, keep="start", **how)
    right = predictive(run.result, held.x, masks=20).mean(0).argmax(-1) == held.y
    full = run.full.predict(held.x).argmax(-1) == held.y
    logistic, network = rivals(
        (texts[: int(0.8 * count)], labels[: int(0.8 * count)]), (new, truth), seed
    )
    found = list(shown.words.table.index[shown.words.table["found"]])
    hits = len({*found} & {*planted})
    return {
        "rows": count,
        "found": found,
        "tpr": hits / len(planted),
        "fdr": 1.0 - hits / len(found) if found else 0.0,
        "accuracy": float(right.double().mean()),
        "full": float(full.double().mean()),
        "logistic": logistic,
        "network": network,
        "size": shown.size.mean,
        "cpu_seconds": seconds,
        "sentence": plain(first_screen(shown).answers()[0][1]),
        "warnings": list(shown.warnings),
    }


def shapes_of(count, rng):
    """Images `(N, 24, 24)` in [0, 1], labels, and which pixels are of what decides."""
    labels, down, across = rng.integers(0, 2, count), *np.mgrid[:SIDE, :SIDE]
    images, decides = np.empty((2, count, SIDE, SIDE))
    for row, label in enumerate(labels):
        while True:
            (y, x), (v, u) = rng.integers(4, SIDE - 4, (2, 2))
            if max(abs(y - v), abs(x - u)) > 8:
                break
        square = (abs(down - y) <= 3) & (abs(across - x) <= 3)
        decides[row] = square if label else (down - y) ** 2 + (across - x) ** 2 <= 17
        high, wide = abs(down - v), abs(across - u)
        cross = ((high <= 1) & (wide <= 3)) | ((wide <= 1) & (high <= 3))
        other = cross if rng.random() < 0.5 else (high <= 1) & (wide <= 3)
        images[row] = 0.3 + 0.4 * np.maximum(decides[row], other)
    images = (images + NOISE * rng.normal(size=images.shape)).clip(0, 1)
    return (images * 255).round().astype(np.uint8), labels, decides


def plain_accuracy(x, y, new, truth, seed):
    """Accuracy of two convolutions and a maximum."""
    torch.manual_seed(seed)
    network = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(1)),
        *(nn.Flatten(), nn.Linear(32, 2)),
    )
    optimizer = torch.optim.Adam(network.parameters(), 5e-3)
    return fitted_accuracy(network, optimizer, (x, y), (new, truth), steps=600, batch=50)


def shapes_record(name, seed, rows=None, quick=False):
    """Which patches are kept of images with two shapes, and how well they are predicted."""
    count = rows or SHAPES[name]
    rng = np.random.default_rng([seed, count])
    images, labels, _ = shapes_of(count, rng)
    new, truth, decides = shapes_of(1_000, rng)
    begun = process_time()
    with TemporaryDirectory() as folder:
        for row, (image, label) in enumerate(zip(images, labels, strict=True)):
            path = Path(folder) / "images" / ("circle", "square")[label] / f"{row}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)
        command = ["explain", str(Path(folder) / "images"), "--out", str(Path(folder) / "out")]
        command += ["--rows", "10000", "--quiet", "--seed", str(seed), *["--epochs", "1"] * quick]
        run = report_of(command)
    seconds = process_time() - begun
    shown = run.results()
    x, y = torch.from_numpy(new / 255.0).float().unsqueeze(1), torch.from_numpy(truth)
    right = (predictive(run.result, x, masks=20).argmax(-1) == y).double().mean(1)
    means = mask_means(explanation_tree(run.result, x, draws=1)).values
    parts = decides.reshape(len(x), SIDE // PATCH, PATCH, SIDE // PATCH, PATCH).mean((2, 4))
    parts, kept = parts.reshape(len(x), -1), means > 0.5
    tpr, fdr = (
        [float(share) for share in shares]
        for shares in (
            [each[parts >= 0.25].mean() for each in kept],
            [(parts[each] == 0).mean() if each.any() else 0.0 for each in kept],
        )
    )
    fitted = torch.from_numpy(images[: int(0.8 * count)] / 255.0).float().unsqueeze(1)
    labels = torch.from_numpy(labels[: int(0.8 * count)])
    return {
        "rows": count,
        "tpr": float(np.mean(tpr)),
        "fdr": float(np.mean(fdr)),
        "by_replicate": {"tpr": tpr, "fdr": fdr, "accuracy": right.tolist()},
        "accuracy": float(right.mean()),
        "full": float((run.full.predict(x).argmax(-1) == y).double().mean()),
        "network": plain_accuracy(fitted, labels, x, y, seed),
        "size": float(means.sum(-1).mean()),
        "cpu_seconds": seconds,
        "sentence": plain(first_screen(shown).quality()),
        "warnings": list(shown.warnings),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    every = [*SETS, *SHAPES]
    parser.add_argument("--sets", nargs="+", choices=every, default=every)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rows", type=int, help="of each set, in place of its own")
    small = {"sets": ["classes", "shapes 500"], "rows": 90}
    options = options_of(parser, small=small)
    records = Records("planted_parts", SAME, line, options)
    wanted = [{"set": s, "seed": seed} for seed in range(options.seeds) for s in options.sets]
    for run in records.due(wanted):
        with records.run(run) as record:
            rows, quick = options.rows, options.small
            record_of = shapes_record if run["set"] in SHAPES else words_record
            record |= record_of(run["set"], run["seed"], rows, quick)


if __name__ == "__main__":
    main()
