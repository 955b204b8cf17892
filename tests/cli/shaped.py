"""Small images and texts of which it is known what matters, as files."""

from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

FILLER = [
    *("the", "a", "film", "with", "of", "and", "this", "that", "story", "scene", "actor"),
    *("was", "had"),
]
TELLING = {"bad": "awful", "good": "great"}


def folder_of_images(root: Path, count: int = 50) -> Path:
    """Images of 8 × 8: the upper left quarter is bright in one class, dark in the other, and the
    other quarters are bright or dark at random."""
    generator = np.random.default_rng(0)
    for label, level in (("bright", 200), ("dark", 40)):
        (root / label).mkdir(parents=True)
        for i in range(count):
            levels = generator.choice([40, 200], (2, 2))
            levels[0, 0] = level
            pixels = np.kron(levels, np.ones((4, 4))) + generator.integers(-20, 20, (8, 8))
            Image.fromarray(pixels.astype(np.uint8)).save(root / label / f"{i}.png")
    return root


def folder_of_shapes(root: Path, count: int = 150) -> Path:
    """Images of 16 × 16: a bright bar of 2 × 6 or 6 × 2 at a random place in noise."""
    generator = np.random.default_rng(0)
    for label, (high, across) in (("lying", (2, 6)), ("standing", (6, 2))):
        (root / label).mkdir(parents=True)
        for i in range(count):
            pixels = generator.normal(80, 25, (16, 16))
            row, column = generator.integers(0, 11, 2)
            pixels[row : row + high, column : column + across] += 120
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(root / label / f"{i}.png")
    return root


def table_of_texts(path: Path, rows: int = 120, **cells: object) -> Path:
    """Texts of filler and one word that tells the class, with the class and another column."""
    generator = np.random.default_rng(0)
    lines = []
    for row in range(rows):
        verdict = ["bad", "good"][row % 2]
        words = list(generator.choice(FILLER, generator.integers(4, 9)))
        words.insert(int(generator.integers(0, len(words))), TELLING[verdict])
        lines.append({"id": row, "review": " ".join(words) + ".", "verdict": verdict})
    frame = pd.DataFrame(lines)
    for column, value in cells.items():
        frame[column] = frame[column].astype(object)
        frame.loc[3, column] = value
    frame.to_csv(path, index=False)
    return path
