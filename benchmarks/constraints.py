"""What a fairness or a privacy constraint does to what a model rests on: Q-FIT on Adult.

    python benchmarks/constraints.py                     # 8 replicates of each model, minutes
    python benchmarks/constraints.py --study fairness
    python benchmarks/constraints.py --small
    LEXPPL_DATA=/data python benchmarks/constraints.py   # where adult/adult.data.gz lies

Adult without race and sex. Fair models: logistic regressions mixed by fairlearn's
ExponentiatedGradient under demographic parity of race (white or not), each at a least ratio of the
two rates of a positive decision (the percentage rule). Private models: a network by DP-SGD of
opacus at several noise levels, ε at δ = 1e-5 by its accountant. Each model's global Q-FIT
explanation has replicates over seeds and rows; its divergence to the unconstrained model's stands
beside that between the two halves of the unconstrained model's own replicates, the negative
control. Needs the extra `lexppl[studies]`.
"""

import argparse
import warnings

import numpy as np
import pandas as pd
import pyro.distributions as dist
import torch
from record import Records, options_of
from tabular import ADULT, FOLDER
from torch import nn

from lexppl.data import dataset_from_frame
from lexppl.evaluation import explanation_divergence
from lexppl.inference import fit
from lexppl.models import Grouping
from lexppl.systems import q_fit

RULES = (0.7, 0.82, 0.96)
"""Least percentage rules. The paper's models have 0.44 (unconstrained), 0.57, 0.82 and 0.96; this
unconstrained model has 0.63 already."""
NOISE = (0.5, 1.0, 4.0, 17.0)
DELTA = 1e-5
HIDDEN = 32


class Mixture(nn.Module):
    """`p(y | x) = Σ_t w_t Bernoulli(σ(c_t · x + b_t))`, as two classes."""

    def __init__(self, weights, slopes, intercepts):
        super().__init__()
        for name, value in (("weights", weights), ("slopes", slopes), ("intercepts", intercepts)):
            self.register_buffer(name, torch.as_tensor(np.asarray(value), dtype=torch.float32))

    def forward(self, x):
        share = (torch.sigmoid(x @ self.slopes.T + self.intercepts) * self.weights).sum(-1)
        share = share.clamp(1e-6, 1 - 1e-6)
        return dist.Categorical(probs=torch.stack([1 - share, share], -1))


class Network(nn.Module):
    """Two classes by a network."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        return dist.Categorical(logits=self.network(x))


def adult(rows):
    """Complete rows without race and sex, and whether each is of a white person."""
    frame = pd.read_csv(
        FOLDER / "adult" / "adult.data.gz", names=ADULT, sep=r",\s*", engine="python", na_values="?"
    ).dropna()
    frame = frame.sample(min(rows, len(frame)), random_state=0).reset_index(drop=True)
    white = (frame["race"] == "White").to_numpy()
    return dataset_from_frame(frame.drop(columns=["race", "sex"]), target="income"), white


def percentage_rule(model, x, white):
    """The smaller of the two ratios of the groups' rates of a positive decision."""
    with torch.no_grad():
        decided = (model(x).probs[:, 1] > 0.5).numpy()
    rates = decided[white].mean(), decided[~white].mean()
    return float(min(rates) / max(rates)) if max(rates) > 0 else 1.0


def accuracy(model, x, y):
    with torch.no_grad():
        return float((model(x).probs.argmax(-1) == y).float().mean())


def unconstrained(x, y):
    from sklearn.linear_model import LogisticRegression

    plain = LogisticRegression(max_iter=300).fit(x.numpy(), y.numpy())
    return Mixture([1.0], plain.coef_, plain.intercept_)


def fair(x, y, white, rule):
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient
    from sklearn.linear_model import LogisticRegression

    reduced = ExponentiatedGradient(
        LogisticRegression(max_iter=300),
        DemographicParity(ratio_bound=rule, ratio_bound_slack=0.005),
        max_iter=20,
    )
    reduced.fit(x.numpy(), y.numpy(), sensitive_features=white)
    kept = [
        (weight, reduced.predictors_[place])
        for place, weight in reduced.weights_.items()
        if weight > 0 and hasattr(reduced.predictors_[place], "coef_")
    ]
    total = sum(weight for weight, _ in kept)
    return Mixture(
        [weight / total for weight, _ in kept],
        [one.coef_[0] for _, one in kept],
        [one.intercept_[0] for _, one in kept],
    )


def private(x, y, noise, epochs, seed=0):
    """A network by DP-SGD, and its ε; without noise by plain SGD, ε infinite."""
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(x.shape[1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    loader = DataLoader(TensorDataset(x, y), batch_size=250, shuffle=True)
    trained, engine = network, None
    if noise > 0:
        engine = PrivacyEngine()
        trained, optimizer, loader = engine.make_private(
            module=network, optimizer=optimizer, data_loader=loader, noise_multiplier=noise,
            max_grad_norm=1.0,
        )  # fmt: skip
    for _ in range(epochs):
        for rows, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(trained(rows), labels).backward()
            optimizer.step()
    epsilon = float("inf") if engine is None else float(engine.get_epsilon(DELTA))
    plain = nn.Sequential(nn.Linear(x.shape[1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2))
    plain.load_state_dict({n.removeprefix("_module."): v for n, v in trained.state_dict().items()})
    return Network(plain), epsilon


def explained(model, data, options, seed=0):
    system = q_fit(
        data.x.shape[1], model, scope="global", grouping=Grouping(data.groups, data.entry_names)
    )
    return fit(
        system, (data.x, data.y), valid=None, epochs=options.epochs, replicates=options.replicates,
        row_weights="dirichlet", seed=seed, progress=False,
    )  # fmt: skip


def top_entries(result, data):
    """The three largest mean shares, averaged over replicates."""
    means = torch.stack([guide.distribution.mean.detach() for guide in result.guides]).mean(0)
    return [f"{data.entry_names[i]} {means[i]:.2f}" for i in means.argsort(descending=True)[:3]]


def constraints_of(study, options):
    """The number of each constraint by its name, the unconstrained model's first."""
    if study == "fairness":
        return {"none": 0.0, **{f"ratio ≥ {rule}": rule for rule in options.rules}}
    return {f"noise {noise:g}": noise for noise in (0.0, *options.noise)}


def constrained(study, number, data, white, options):
    """A model, and its ε where it has one."""
    if study == "privacy":
        model, epsilon = private(data.x, data.y, number, options.private_epochs)
        return model, epsilon if number else None
    model = fair(data.x, data.y, white, number) if number else unconstrained(data.x, data.y)
    return model, None


def line(study, constraint, rule, accuracy, nats, error, excess, excess_error, **_):
    return (
        f"{study}: {constraint}: rule {rule:.2f}, accuracy {accuracy:.3f}, KL {nats:.2f} ± "
        f"{error:.2f}, above replicates {excess:.2f} ± {excess_error:.2f}"
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    take = parser.add_argument
    take("--study", nargs="+", choices=("fairness", "privacy"), default=["fairness", "privacy"])
    take("--rows", type=int, default=3000)
    take("--epochs", type=int, default=80, help="of Q-FIT")
    take("--private-epochs", type=int, default=10)
    take("--replicates", type=int, default=8)
    take("--rules", type=float, nargs="+", default=list(RULES))
    take("--noise", type=float, nargs="+", default=list(NOISE))
    options = options_of(
        parser,
        {"rows": 300, "epochs": 3, "private_epochs": 1, "replicates": 3, "rules": [0.8],
         "noise": [1.0]},
    )  # fmt: skip
    warnings.simplefilter("ignore")
    records = Records("constraints", ("study", "constraint"), line, options)
    data, white = adult(options.rows)
    for study in options.study:
        numbers = constraints_of(study, options)
        due = records.due({"study": study, "constraint": name} for name in numbers)
        if not due:
            continue
        # Of another seed than the same model's own record, which is the control.
        free = constrained(study, 0.0, data, white, options)[0]
        reference = explained(free, data, options, seed=1)
        for run in due:
            with records.run(run) as record:
                number = numbers[run["constraint"]]
                model, epsilon = constrained(study, number, data, white, options)
                result = explained(model, data, options)
                record |= vars(explanation_divergence(result, reference))
                record["rule"] = percentage_rule(model, data.x, white)
                record["accuracy"] = accuracy(model, data.x, data.y)
                record["epsilon"] = epsilon
                record["first"] = top_entries(result, data)
                record["rows"], record["replicates"] = len(data), options.replicates


if __name__ == "__main__":
    main()
