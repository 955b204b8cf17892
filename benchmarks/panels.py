"""LEX's Figures 5, 13 and 14: which of two panels says the label, by imputer and rate.

    python benchmarks/panels.py                                  # SP-MNIST, 2,000 rows, minutes
    python benchmarks/panels.py --sets mnist fashion --rates 0.05 0.1 0.25
    python benchmarks/panels.py --full --device cuda             # 48,000 rows, each pixel, U-Net
    python benchmarks/panels.py --small                          # to see that it runs
    LEXPPL_DATA=/data python benchmarks/panels.py                # where MNIST/raw/… lies

An image of MNIST and one of Fashion-MNIST side by side, in random order; the label is that of one
of them. Exact k-subset masks, k = rate x entries, judged on 10 draws a row: accuracy, and the share
of the selection in the wrong panel, which is .5 of masks that know nothing. By default an entry is
a patch of 4 x 4 pixels and networks are perceptrons on pixels (`--networks convolutional` for the
paper's). But for the surrogate's, the predictor learns with the selector; for `--warm` epochs it
learns from random masks before.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import torch
from record import Records, options_of, timed
from torch.nn.functional import avg_pool2d

from lexppl.data.named_sets import switching_panels
from lexppl.evaluation import predictive
from lexppl.inference import LossTerm, Stage, System, fit
from lexppl.inference.contexts import seeded
from lexppl.models import ConstantImputer, flat_images, images
from lexppl.models.architectures.base import Architecture
from lexppl.models.imputers import imputer_of
from lexppl.systems import fit_vaeac, lex, random_mask_predictor

FOLDER = Path(os.environ.get("LEXPPL_DATA", Path(__file__).parents[2] / "shared" / "data"))
SHAPE = (1, 28, 56)
DRAWS = 10
SURROGATE = "surrogate constant"
IMPUTERS = (
    "constant",
    SURROGATE,
    "marginal",
    "gaussian",
    "gaussian-mixture",
    "mixture-means",
    "mixture-data",
    "kmeans-data",
    "logistic-mixture",
    "logistic-means",
    "vaeac",
)
NETWORKS = ("flat", "convolutional")
SAME = ("set", "imputer", "rate", "seed", "rows", "epochs", "patches", "networks", "masks", "warm")
LINE = (
    "{set} {imputer} k = {k} data {seed}: accuracy {accuracy:.3f} outside {outside:.3f} "
    "{seconds:.0f} s"
).format


def architecture_of(options: argparse.Namespace) -> Architecture:
    if options.networks == "flat":
        return flat_images(SHAPE, options.patches, hidden=(200,), predictor_hidden=(200, 200))
    if options.full:
        return images(SHAPE, options.patches)
    return images(SHAPE, options.patches, blocks=(8, 16), levels=2, width=4)


def imputer_for(name: str, train: Any, options: argparse.Namespace, grouping: Any) -> Any:
    """The imputer of a name, fitted on the training rows."""
    if name in ("constant", SURROGATE):
        return ConstantImputer(0.0).to(train.x.device)
    if name != "vaeac":
        return imputer_of(name, train.x, seed=0)
    epochs = 2 if options.small else 100 if options.full else 10
    width = {} if options.full else {"width": 8}
    return fit_vaeac(train.x, epochs=epochs, grouping=grouping, **width)


def system(k: int, imputer: Any, networks: Architecture, name: str, options: Any) -> System:
    """LEX with a predictor that may learn from random masks before; the surrogate's from them
    alone."""
    joint = lex(networks, classes=10, k=k, imputer=imputer, masks=options.masks, folds=1)
    epochs = options.epochs if name == SURROGATE else options.warm

    def build() -> list[Stage]:
        stages = list(joint.build())
        (term,) = stages[0].terms
        model = term.model
        if not epochs:
            return stages
        before = random_mask_predictor(
            model.predictor, imputer, networks.entries, grouping=networks.grouping
        )
        if name == SURROGATE:
            stages = [Stage([LossTerm(model, term.objective, learns=[model.selector])])]
        return [Stage([before], epochs=epochs), *stages]

    return System(build)


def judged(result: Any, test: Any, patches: int) -> dict[str, float]:
    # A patch is relevant where more than half of its pixels are.
    inside = avg_pool2d(test.truth.float().unsqueeze(1), patches, ceil_mode=True)
    truth = (inside > 0.5).flatten(1)
    with seeded(0), torch.no_grad():
        parts = [result.model.selector(x).sample((DRAWS,)) for x in test.x.split(1000)]
    masks, outside = torch.cat(parts, 1).double(), 1.0 - truth.double()
    selected = masks.sum(-1)
    shares = torch.where(selected > 0, (masks * outside).sum(-1) / selected, 1.0).mean(0)
    y = predictive(result, test.x, masks=DRAWS)[result.best]
    return {
        "accuracy": float((y.argmax(-1) == test.y).float().mean()),
        "outside": float(shares.mean()),
        "outside_error": float(shares.std() / len(shares) ** 0.5),
    }


def present() -> bool:
    """Whether both kinds of images are there; where they are not, say so."""
    missing = [name for name in ("MNIST", "FashionMNIST") if not (FOLDER / name).is_dir()]
    for name in missing:
        print(f"nothing is run: no folder {FOLDER / name}; set LEXPPL_DATA to where it lies")
    return not missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    take = parser.add_argument
    take("--sets", nargs="+", default=["mnist"], choices=("mnist", "fashion"))
    take("--imputers", nargs="+", default=list(IMPUTERS), choices=IMPUTERS)
    take("--rates", type=float, nargs="+", default=[0.1])
    take("--data-sets", type=int, default=1)
    take("--rows", type=int, default=2_000, help="for training; half as many for tests")
    take("--epochs", type=int)
    take("--masks", type=int, default=4, help="L")
    take("--warm", type=int, default=10, help="epochs of the predictor on random masks, before")
    take("--patches", type=int, help="side of an entry in pixels; 4, of --full 1")
    take("--networks", choices=NETWORKS, help="flat; of --full convolutional")
    take("--device", default="cpu")
    take("--full", action="store_true")
    options = options_of(parser, small={"rows": 200, "epochs": 2, "warm": 1})
    options.networks = options.networks or ("convolutional" if options.full else "flat")
    options.patches = options.patches or (1 if options.full else 4)
    options.epochs = options.epochs or (100 if options.full else 30)
    if options.full:
        options.rows = 48_000
    if not present():
        return
    records = Records("panels", SAME, LINE, options)
    settings = {key: getattr(options, key) for key in SAME if hasattr(options, key)}
    for seed in range(1, 1 + options.data_sets):
        for name in options.sets:
            due = records.due(
                {**settings, "set": name, "imputer": imputer, "rate": rate, "seed": seed}
                for imputer in options.imputers
                for rate in options.rates
            )
            if due:
                explained(name, seed, due, records, options)


def explained(
    name: str, seed: int, due: list[Any], records: Records, options: argparse.Namespace
) -> None:
    """Those fits to a data set that are not recorded."""
    sizes = (48_000, 12_000, 10_000) if options.full else (options.rows, *[options.rows // 2] * 2)
    data = switching_panels(name, FOLDER, rows=sizes, seed=seed).to(options.device)
    networks = architecture_of(options)
    for run in due:
        with records.run(run) as record:
            imputing: dict[str, float] = {}
            with timed(imputing):
                imputer = imputer_for(run["imputer"], data.train, options, networks.grouping)
            k = max(1, round(run["rate"] * networks.entries))
            explainer = system(k, imputer, networks, run["imputer"], options).to(options.device)
            result = fit(
                explainer,
                (data.train.x, data.train.y),
                valid=(data.valid.x, data.valid.y),
                epochs=options.epochs,
                batch_size=64,
                learning_rate=1e-4 if options.full else 1e-3,
                seed=seed,
                progress=False,
            )
            record |= {"k": k, "entries": networks.entries, "device": options.device}
            record |= {"collapse": result.collapse[result.best], "imputing": imputing["seconds"]}
            record |= judged(result, data.test, options.patches)


if __name__ == "__main__":
    main()
