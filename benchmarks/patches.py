"""Q-FIT's Table 3: which patches of 4 × 4 pixels tell a 3 of MNIST from an 8.

    python benchmarks/patches.py                             # minutes
    python benchmarks/patches.py --methods q_fit lex
    python benchmarks/patches.py --full --device cuda        # 200 epochs, three seeds
    python benchmarks/patches.py --small                     # to see that it runs
    LEXPPL_DATA=/data python benchmarks/patches.py           # where MNIST/raw/… lies

The given model and the judge are two fits of one network, 300-300 with batch norm, to whole digits;
the judge labels test digits of which the k highest of 49 patches are kept, all else black. Q-FIT,
L2X and LEX explain the given model, the latter two with a fit for each k; INVASE and REAL-X learn a
predictor of their own from the labels. Where a method has a grid, its candidates are replicates of
one fit, chosen by the given model's accuracy over k = 1 … 5 on digits apart.
"""

import argparse

from importances import accuracy_of, importances, top
from judged_images import FOLDER, RATE, said_if_absent
from record import Records, options_of

from lexppl.data import mnist
from lexppl.evaluation import fit_predictor
from lexppl.inference import fit
from lexppl.models import flat_images, frozen, regime_targets
from lexppl.systems import METHODS, invase, l2x, lex, q_fit, real_x

SIZES = (1, 2, 3, 4, 5)
GRIDS = {
    "q_fit": (0.03,),
    "l2x": SIZES,
    "invase": (0.005, 0.02),
    "real_x": (0.005, 0.02),
    "lex": SIZES,
}
"""Of Q-FIT the weight of its KL, of L2X and LEX k, else λ in nats a patch."""

BY_SIZE = ("l2x", "lex")
SAME = ("method", "seed", "full", "epochs")


def line(**record):
    accuracies = [round(a, 3) for a in record["accuracy"]]
    return f"{record['seed']} {record['method']:7s} {accuracies} {record['seconds']:.0f} s"


def systems(method, architecture, given):
    """A system for each member of the method's grid."""
    grid, of = GRIDS[method], {"classes": 2}
    if method == "q_fit":
        return [q_fit(architecture, given, kl_weight=weight, samples=2) for weight in grid]
    if method == "l2x":
        return [l2x(architecture, k=k, **of) for k in grid]
    if method == "lex":
        own = {"masks": 2, "unit": 1.0, "predictor": frozen(given), **of}
        return [lex(architecture, k=k, **own) for k in grid]
    factory = {"invase": invase, "real_x": real_x}[method]
    return [factory(architecture, penalty=penalty, **of) for penalty in grid]


def fitted(method, tried, data, training):
    """Each system's fit, and its place there: `[(result, replicate), …]`."""
    if method == "l2x":
        # Its k draws are of a shape of their own: no replicates of one fit.
        return [(fit(one, data, **training), 0) for one in tried]
    result = fit(tried, data, **training)
    return [(result, place) for place in range(result.replicates)]


def accuracies(found, data, judge, grouping):
    """The judge's accuracy with the k highest patches by the k-th of five fits, k = 1 … 5."""
    shares = []
    for (result, place), k in zip(found, SIZES, strict=True):
        ranking = importances(result, data.x, place)
        shares.append(accuracy_of(judge, data, top(ranking, k), grouping))
    return shares


def parts(seed, options):
    """Digits for training, for choices and for tests."""
    train, test = (
        mnist(FOLDER, train=of_training).only(3, 8).to(options.device)
        for of_training in (True, False)
    )
    if options.small:
        train, test = train.take(600, seed=seed), test.take(200, seed=seed)
    return *train.split(0.85, 0.15, seed=seed), test


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", choices=list(GRIDS), default=list(GRIDS))
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--epochs", type=int, help="24; of --full 200; of Q-FIT four times as many")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda")
    parser.add_argument("--full", action="store_true", help="200 epochs, for a GPU")
    options = options_of(parser, small={"seeds": 1})
    seeds = options.seeds or (3 if options.full else 1)
    epochs = 2 if options.small else options.epochs or (200 if options.full else 24)
    # As `lexppl compare` has it: of Q-FIT's shares, which start alike and part slowly.
    longer = {} if options.small else {name: METHODS[name].epochs * epochs for name in METHODS}
    shared = {"valid": 0.1, "batch_size": 100, "progress": False, "learning_rate": RATE}
    records = Records("patches", SAME, line, options)
    runs = [
        {"method": method, "seed": seed, "full": options.full, "epochs": epochs}
        for seed in range(1, 1 + seeds)
        for method in options.methods
    ]
    widths = {"hidden": (200, 200), "predictor_hidden": (300, 300)}
    architecture = flat_images((1, 28, 28), patches=4, batch_norm=True, **widths)
    # The predictor of random masks is fitted before the selector and then stands still.
    without = flat_images((1, 28, 28), patches=4, **widths)
    grouping = architecture.grouping.to(options.device)
    due = records.due(runs)
    for seed in dict.fromkeys(run["seed"] for run in due):
        with said_if_absent():
            train, check, test = parts(seed, options)
        given, judge = (
            fit_predictor(
                train,
                network=architecture.predictor(2, seed=own).to(options.device),
                seed=own,
                epochs=2 if options.small else 24,
                **shared,
            )
            for own in (seed, seed + 1000)
        )
        explained = regime_targets("self post-hoc", train.x, predictor=given.predictor)
        for run in (run for run in due if run["seed"] == seed):
            method = run["method"]
            of_model = method in ("q_fit", "l2x", "lex")
            with records.run(run) as record:
                nets = without if method == "real_x" else architecture
                found = fitted(
                    method,
                    [s.to(options.device) for s in systems(method, nets, given.predictor)],
                    (train.x, explained if of_model else train.y),
                    {"seed": seed, "epochs": longer.get(method, epochs), **shared},
                )
                choices = [found] if method in BY_SIZE else [[one] * len(SIZES) for one in found]
                tried = [accuracies(each, check, given.predictor, grouping) for each in choices]
                place = max(range(len(tried)), key=lambda place: sum(tried[place]))
                chosen = choices[place]
                own, judged = (
                    accuracies(chosen, test, who.predictor, grouping) for who in (given, judge)
                )
                record |= {
                    "k": list(SIZES),
                    "accuracy": judged,
                    "given_accuracy": own,
                    "tried": tried,
                    "setting": None if method in BY_SIZE else GRIDS[method][place],
                    "full_accuracy": judge.scores(test.x, test.y).accuracy,
                    "fit_epochs": longer.get(method, epochs),
                    "rows": len(train),
                    "collapse": [result.collapse[place] for result, place in chosen],
                    "device": options.device,
                }


if __name__ == "__main__":
    main()
