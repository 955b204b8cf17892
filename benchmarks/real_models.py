"""Models that nobody here trained, from wheels, explained against what is known of them.

    python benchmarks/real_models.py                     # all whose package is installed
    python benchmarks/real_models.py --models budoux vadersentiment
    python benchmarks/real_models.py --small             # to see that it runs

A model gives a response for each row of a table, and which columns it reads is known:

- magika: files of sixteen blocks of 128 bytes, each as it is or noise; P(their type). The first
  block has the signature, the last one the trailer; between them each file has bytes of its own
  without structure, like those of noise, so that no other block can matter.
- budoux: twelve Japanese characters beside a place; the score of a break. It reads the inner six.
- vadersentiment: which of 24 words a text has; the compound score. Its lexicon has twelve.
- py3langid: which of 24 words a text has; the log-odds of German to English. The truth are words
  that move them alone, which numbers hardly do.
- silero_vad: six parts of a second, each as it is or silent; the mean of P(speech). Three are
  speech of espeak-ng, and three are tones, noise or silence.

`ExplainerRegressor("lex")` is fitted to half of the rows at its defaults; a row of the other half
has found the columns that it keeps with a probability above one half. SHAP is its permutation
explainer of five rows by ten permutations, with 100 rows as background (of magika two rows and
five, of silero_vad five and ten); it has found what is above a hundredth of the row's largest size.
"""

import argparse
import importlib.util
import io
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from record import Records, options_of

from lexppl import ExplainerRegressor
from lexppl.models import black_box
from lexppl.models.calls import shap_rows

SAME = ("model", "case", "seed")
BLOCKS, BLOCK = 16, 128
PARTS, PART, RATE = 6, 16_384, 16_000
LARGE = 0.01
"""Of the largest of SHAP's mean sizes: where a column is found."""
GERMAN = ["und", "nicht", "schön", "straße", "zwischen", "wasser"]
ENGLISH = ["the", "through", "with", "water", "which", "beautiful"]
DIGITS = ["17", "204", "3", "88", "915", "42", "60", "7", "11", "530", "29", "476"]
FEELINGS = ["great", "awful", "happy", "terrible", "love", "hate", "excellent", "horrible"]
FEELINGS += ["good", "bad", "superb", "nasty"]
THINGS = ["table", "river", "paper", "window", "music", "morning", "letter", "garden", "house"]
THINGS += ["street", "coffee", "engine"]


def line(**record):
    ours, shap = (
        ", ".join(f"{record[w][n]:.2f}" for n in ("tpr", "fdr")) for w in ("ours", "shap")
    )
    return (
        f"{record['model']} {record['case']}: TPR, FDR {ours}, SHAP {shap}; calls "
        f"{record['ours']['calls']:,}, SHAP {record['shap']['calls']:,}; {record['seconds']:.0f} s"
    )


def presence(columns, draw, rows):
    """Columns of 0 and 1, each in half of the rows."""
    return pd.DataFrame(draw.integers(0, 2, (rows, len(columns))), columns=columns)


def words_in(columns, row):
    return " ".join(word for word, there in zip(columns, row, strict=True) if there)


def magika(case, draw, rows):
    import magika as package

    folder = next((Path(package.__file__).parent / "models").iterdir())
    labels = pd.read_json(folder / "config.min.json", typ="series")["target_labels_space"]
    place, first_and_last = labels.index(case), ends(case, draw)
    model = black_box(folder / "model.onnx", output="probabilities", batch_size=64)
    table = presence([f"block {n}" for n in range(BLOCKS)], draw, rows)

    def type_of(frame):
        seen = np.stack([file_with_noise(row) for row in frame.to_numpy().astype(bool)])
        return model.targets(torch.from_numpy(seen))[:, place].numpy()

    def file_with_noise(row):
        # Drawn by the row, so that every call sees the same bytes.
        drawn = np.random.default_rng(np.packbits(row).tolist())
        file, noise = drawn.integers(0, 256, (2, BLOCKS, BLOCK))
        file[[0, -1]] = first_and_last
        return np.where(row[:, None], file, noise).flatten()

    return table, type_of, ["block 0", f"block {BLOCKS - 1}"]


def ends(case, draw):
    """The first and the last block of a file of this type."""
    file = io.BytesIO()
    if case == "zip":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(zipfile.ZipInfo("photo.jpg"), draw.bytes(4000))
    elif case == "pdf":
        file.write(b"%PDF-1.5\n4 0 obj\n<</Filter/FlateDecode/Length 4000>>\nstream\n")
        file.write(draw.bytes(4000) + b"\nendstream\nendobj\nstartxref\n3416\n%%EOF\n")
    elif case == "elf":
        file.write(Path(sys.executable).read_bytes())
    else:
        from PIL import Image

        pixels = draw.integers(0, 256, (80, 80)).astype(np.uint8)
        Image.fromarray(pixels).quantize(16).save(file, case)
    content = np.frombuffer(file.getvalue(), np.uint8)
    return np.stack([content[:BLOCK], content[-BLOCK:]])


def budoux(case, draw, rows):
    import budoux as package

    scores = package.load_default_japanese_parser().model
    sizes = Counter()
    for name in ("UW1", "UW2", "UW3", "UW4", "UW5", "UW6"):
        sizes.update({letter: abs(score) for letter, score in scores[name].items()})
    letters = [letter for letter, _ in sizes.most_common(30)]
    places = [f"{n:+d}" for n in range(-6, 6)]
    table = pd.DataFrame(draw.choice(letters, (rows, 12)), columns=places)
    spans = {"UW1": (3, 4), "UW2": (4, 5), "UW3": (5, 6), "UW4": (6, 7), "UW5": (7, 8)}
    spans |= {"UW6": (8, 9), "BW1": (4, 6), "BW2": (5, 7), "BW3": (6, 8), "TW1": (3, 6)}
    spans |= {"TW2": (4, 7), "TW3": (5, 8), "TW4": (6, 9)}

    def break_score(frame):
        texts = ["".join(row) for row in frame.to_numpy()]
        each = [[scores[n].get(t[a:b], 0) for n, (a, b) in spans.items()] for t in texts]
        return np.sum(each, 1) / 1000

    return table, break_score, places[3:9]


def vadersentiment(case, draw, rows):
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

    analyser = SentimentIntensityAnalyzer()
    columns = [*FEELINGS, *THINGS]

    def compound(frame):
        return [
            analyser.polarity_scores(words_in(columns, row))["compound"] for row in frame.to_numpy()
        ]

    return presence(columns, draw, rows), compound, [w for w in columns if w in analyser.lexicon]


def py3langid(case, draw, rows):
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    model = LanguageIdentifier.from_model_file(MODEL_FILE)
    model.set_languages(["de", "en"])
    columns = [*GERMAN, *ENGLISH, *DIGITS]

    def log_odds(frame):
        # Between bars no n-gram of the model joins two words.
        texts = [words_in(columns, row).replace(" ", " || ") for row in frame.to_numpy()]
        found = [dict(model.rank(f"|| {text} ||")) for text in texts]
        return [one["de"] - one["en"] for one in found]

    bare = log_odds(pd.DataFrame([[0] * len(columns)]))[0]
    alone = log_odds(pd.DataFrame(np.eye(len(columns), dtype=int)))
    truth = [word for word, odds in zip(columns, alone, strict=True) if odds != bare]
    return presence(columns, draw, rows), log_odds, truth


def silero_vad(case, draw, rows):
    from silero_vad import load_silero_vad

    model = load_silero_vad(onnx=True)
    clip, spoken = spoken_clip(draw)
    table = presence([f"part {n}" for n in range(PARTS)], draw, rows)

    known = {}

    def speech(frame):
        # There are 64 of them.
        rows = [tuple(row) for row in frame.to_numpy().astype(int)]
        new = sorted(set(rows) - known.keys())
        known.update(zip(new, spoken_share(new), strict=True) if new else ())
        return np.array([known[row] for row in rows])

    def spoken_share(rows):
        kept = torch.tensor(rows, dtype=torch.float32)
        whole = torch.from_numpy(clip) * kept.repeat_interleave(PART, 1)
        return model.audio_forward(whole, RATE).mean(1).numpy()

    return table, speech, [f"part {n}" for n in np.flatnonzero(spoken)]


def spoken_clip(draw):
    """Speech in some parts, and tones, noise or silence in the others."""
    from scipy.io import wavfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "speech.wav"
        text = "the quick brown fox jumps over the lazy dog and runs into the forest again"
        subprocess.run(["espeak-ng", "-v", "en", "-w", file, text], check=True)
        rate, audio = wavfile.read(file)
    speech = np.interp(np.arange(0, len(audio), rate / RATE), np.arange(len(audio)), audio / 2**15)
    speech = np.resize(speech[RATE // 4 : -RATE // 4], PARTS * PART)
    spoken = np.zeros(PARTS, bool)
    spoken[draw.choice(PARTS, 3, replace=False)] = True
    time = np.arange(PART) / RATE
    others = [
        lambda: np.zeros(PART),
        lambda: 0.1 * draw.normal(size=PART),
        lambda: 0.3 * np.sin(2 * np.pi * draw.uniform(200, 2000) * time),
    ]
    parts = [
        speech[n * PART : (n + 1) * PART] if one else draw.choice(others)()
        for n, one in enumerate(spoken)
    ]
    return np.concatenate(parts).astype(np.float32), spoken


MODELS = {
    "magika": (magika, ("pdf", "png", "zip", "elf", "gif")),
    "budoux": (budoux, ("ja",)),
    "vadersentiment": (vadersentiment, ("words",)),
    "py3langid": (py3langid, ("words",)),
    "silero_vad": (silero_vad, ("clip 1", "clip 2", "clip 3")),
}
ROWS = {"magika": 4000, "vadersentiment": 4000, "silero_vad": 4000}
"""Where fewer are enough."""
SLOW = {"magika": (2, 5), "silero_vad": (5, 10)}
"""Rows that SHAP explains, and its background, where a call takes long."""
IMPORTED = {"vadersentiment": "vaderSentiment"}


def rates(found, truth):
    """TPR and FDR over the entries of all rows."""
    hits = found & truth
    return {
        "tpr": float(hits.sum() / (len(found) * truth.sum())),
        "fdr": float((found & ~truth).sum() / max(1, found.sum())),
    }


class Counted:
    """A model of arrays that counts the rows it is sent."""

    def __init__(self, model, columns):
        self.model, self.columns, self.rows = model, columns, 0

    def __call__(self, rows):
        self.rows += len(rows)
        return np.asarray(self.model(pd.DataFrame(rows, columns=self.columns)), dtype=float)


def by_shap(model, rows, background):
    """SHAP's findings of some rows, and its calls; words are sent as their places."""
    shap = importlib.import_module("shap")
    levels = {c: pd.Categorical(background[c]).categories for c in background}
    worded = not any(map(pd.api.types.is_numeric_dtype, background.dtypes))

    def coded(frame):
        return np.stack([levels[c].get_indexer(frame[c]) for c in frame], 1).astype(float)

    def read(frame):
        if not worded:
            return model(frame)
        return model(pd.DataFrame({c: levels[c][frame[c].astype(int)] for c in frame}))

    counted = Counted(read, list(rows))
    x, behind = (coded(f) if worded else f.to_numpy(float) for f in (rows, background))
    masker = shap.maskers.Independent(behind, len(behind))
    explainer = shap.explainers.Permutation(counted, masker, seed=0)
    sizes = np.abs(explainer(x, max_evals=10 * (2 * x.shape[1] + 1), silent=True).values)
    return sizes > LARGE * sizes.max(1, keepdims=True), counted.rows


def study(run, options):
    """Ours and SHAP's findings of which columns a model reads."""
    draw = np.random.default_rng(run["seed"])
    rows = min(options.rows, ROWS.get(run["model"], options.rows))
    table, model, truth = MODELS[run["model"]][0](run["case"], draw, rows)
    box = black_box(model, columns=list(table), task="regression")
    half = rows // 2
    # The model is explained: of the labels nothing is used but their units, and they are shuffled.
    shuffled = draw.permutation(np.asarray(model(table[:half]), dtype=float))
    explainer = ExplainerRegressor("lex", model=box, random_state=0, epochs=options.epochs)
    explainer.fit(table[:half], shuffled)
    known = np.isin(list(table), truth)
    kept = explainer.importances(table[half:])
    shap_of, behind = SLOW.get(run["model"], (options.shap_rows, 100))
    few = table[half : half + min(shap_of, options.shap_rows)]
    found, calls = by_shap(model, few, table[: 2 if options.small else behind])
    return {
        "rows": half,
        "columns": len(known),
        "true": int(known.sum()),
        "ours": {
            **rates(kept > 0.5, known),
            "calls": box.calls.rows,
            "call_seconds": box.calls.seconds,
            "kept": dict(zip(table, kept.mean(0).round(3).tolist(), strict=True)),
        },
        "shap": {
            **rates(found, known),
            "calls": calls,
            "rows": len(few),
            "background": behind,
            "defaults": shap_rows(half, len(known)),
        },
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--rows", type=int, default=16_000)
    parser.add_argument("--shap-rows", type=int, default=5)
    parser.add_argument("--epochs", type=int)
    options = options_of(parser, {"rows": 1000, "epochs": 2, "shap_rows": 1})
    records = Records("real_models", SAME, line, options)
    there = [n for n in options.models if importlib.util.find_spec(IMPORTED.get(n, n))]
    runs = [
        {"model": name, "case": case, "seed": n}
        for name in there
        for n, case in enumerate(MODELS[name][1])
    ]
    for run in records.due(runs):
        with records.run(run) as record:
            record |= study(run, options)


if __name__ == "__main__":
    main()
