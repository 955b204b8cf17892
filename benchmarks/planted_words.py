"""Words that are known to decide the class of texts: does `lexppl explain` find them?

    python benchmarks/planted_words.py              # seven sets of texts
    python benchmarks/planted_words.py --sets rare --seeds 1
    python benchmarks/planted_words.py --small      # to see that it runs

A text is 8 to 20 words that say nothing, some frequent and some rare, and among them the words that
decide. *few*, *many*: one or two of three good or of three bad words in 85 of 100 texts, in 300 and
3,000 texts; in the other sets there are 1,500. *negation*: "clean" or "dirty", with "not" before it
in two texts of five, which turns it; "not" is also before words that say nothing. *pair*: of "red"
and "round" both or one, and good where both are there. *rare*: each of the six words in 3 of 100
texts. *classes*: three of them, with two words each. *script*: the words of *few* in Hindi, whose
vowel signs are marks. A share of .02 of the labels is drawn anew.

`found`: the words that the command says the verdict rests on; beside accuracy stand logistic
regression on the words that are there, and two convolutions' network of twenty lines.
"""

import argparse
import csv
import io
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from record import Records, options_of
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from torch import nn

NEUTRAL = """the room was near a pool and street we had it in for breakfast our with floor at of is
staff bed window they bus station lunch coffee river view of lift garden two nights week to on city
market train morning table water light car park child family""".split()
GOOD, BAD = ("superb", "spotless", "friendly"), ("dirty", "rude", "broken")
HINDI = dict(
    zip(
        (*GOOD, *BAD),
        ("बढ़िया", "साफ़", "मिलनसार", "गंदा", "बदतमीज़", "टूटा"),
        strict=True,
    )
)
HINDI_NEUTRAL = """कमरा था पास एक और सड़क हम को में के लिए नाश्ता हमारा साथ फर्श पर का है बिस्तर खिड़की वे
बस स्टेशन दोपहर कॉफ़ी नदी दृश्य बगीचा दो रातें सप्ताह से शहर बाज़ार ट्रेन सुबह मेज़ पानी रोशनी गाड़ी बच्चा परिवार""".split()
SETS = {
    "few": (300, (*GOOD, *BAD)),
    "many": (3_000, (*GOOD, *BAD)),
    "negation": (1_500, ("clean", "dirty", "not")),
    "pair": (1_500, ("red", "round")),
    "rare": (1_500, (*GOOD, *BAD)),
    "classes": (1_500, ("superb", "spotless", "plain", "usual", "rude", "broken")),
    "script": (1_500, tuple(HINDI.values())),
}
WRONG = 0.02
SAME = ("set", "seed")


def line(**record):
    rates = f"TPR {record['tpr']:.2f}, FDR {record['fdr']:.2f}, accuracy {record['accuracy']:.3f}"
    rivals = f"logistic {record['logistic']:.3f}, network {record['network']:.3f}"
    head = f"{record['set']} {record['seed']}: {rates} ({rivals}), {record['cpu_seconds']:.0f} s"
    return f"{head}\n  {record['sentence']}"


def texts_of(name, rows, rng):
    """Texts of a set, and their labels."""
    neutral = HINDI_NEUTRAL if name == "script" else NEUTRAL
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
    return [HINDI[word] for word in own] if name == "script" else own, label, classes
