"""A linear Cox model by this likelihood, against scikit-survival's and lifelines' own."""

import numpy as np
import pytest
import torch
from torch import nn

from lexppl.evaluation import concordance_index
from lexppl.evaluation.survival import breslow_baseline
from lexppl.models import CoxLikelihood

F64 = torch.float64


def fitted(x, y, ties, stratified=False):
    """Coefficients at the maximum of the partial likelihood, and its value there."""
    line = nn.Linear(x.shape[1], 1, bias=False, dtype=F64)
    nn.init.zeros_(line.weight)
    likelihood = CoxLikelihood(ties, stratified)
    optimizer = torch.optim.LBFGS(
        line.parameters(), max_iter=200, tolerance_grad=1e-9, line_search_fn="strong_wolfe"
    )

    def loss():
        optimizer.zero_grad()
        value = -likelihood(line(x)).log_prob(y).sum()
        value.backward()
        return value

    optimizer.step(loss)
    return line.weight.detach()[0], -float(loss().detach())


def tied(seed=0, rows=150):
    """Rows with many ties and three strata."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, 3))
    waited = draw.exponential(size=rows) * np.exp(-x @ [0.8, -0.5, 0.0])
    censoring = draw.exponential(size=rows) * 2
    time = np.ceil(4 * np.minimum(waited, censoring))
    columns = [time, waited <= censoring, draw.integers(0, 3, rows)]
    return torch.as_tensor(x), torch.as_tensor(np.stack(columns, 1).astype(float))


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_coefficients_are_those_of_scikit_survival(ties):
    linear_model = pytest.importorskip("sksurv.linear_model")
    from sksurv.util import Surv

    x, y = tied()
    labels = Surv.from_arrays(y[:, 1].numpy() == 1, y[:, 0].numpy())
    theirs = linear_model.CoxPHSurvivalAnalysis(ties=ties, tol=1e-12).fit(x.numpy(), labels)
    ours, _ = fitted(x, y[:, :2], ties)
    assert np.abs(ours.numpy() - theirs.coef_).max() < 1e-4
    other, _ = fitted(x, y[:, :2], "breslow" if ties == "efron" else "efron")
    assert np.abs(other.numpy() - theirs.coef_).max() > 1e-2


@pytest.mark.smoke
def test_the_baseline_is_breslows():
    linear_model = pytest.importorskip("sksurv.linear_model")
    from sksurv.util import Surv

    x, y = tied()
    labels = Surv.from_arrays(y[:, 1].numpy() == 1, y[:, 0].numpy())
    theirs = linear_model.CoxPHSurvivalAnalysis(ties="breslow").fit(x.numpy(), labels)
    f = torch.as_tensor(theirs.predict(x.numpy()))
    ours = breslow_baseline(f.unsqueeze(0), y[:, :2], "breslow")
    # Theirs is of the mean row where features are centred: predictions say which.
    curve = theirs.predict_cumulative_hazard_function(x[:1].numpy())[0]
    at = ours.times[0]
    assert np.allclose(ours.cumulative[0].numpy() * f[0].exp().item(), curve(at.numpy()), rtol=1e-8)
    efron = breslow_baseline(f.unsqueeze(0), y[:, :2], "efron")
    assert bool((efron.cumulative > ours.cumulative).all())


@pytest.mark.parametrize("stratified", [False, True])
def test_likelihood_and_coefficients_are_those_of_lifelines(stratified):
    lifelines = pytest.importorskip(
        "lifelines", reason="lifelines is no test dependency: it holds pandas below 3"
    )
    import pandas as pd

    x, y = tied(1)
    columns = {f"x{d}": x[:, d].numpy() for d in range(3)}
    frame = pd.DataFrame({**columns, "t": y[:, 0], "e": y[:, 1], "s": y[:, 2]})
    if not stratified:
        frame, y = frame.drop(columns="s"), y[:, :2]
    theirs = lifelines.CoxPHFitter().fit(frame, "t", "e", strata="s" if stratified else None)
    ours, value = fitted(x, y, "efron", stratified)
    assert np.abs(ours.numpy() - theirs.params_.to_numpy()).max() < 1e-3
    assert abs(value - theirs.log_likelihood_) < 1e-3
    assert abs(fitted(x, y, "breslow", stratified)[1] - theirs.log_likelihood_) > 0.1


def test_concordance_by_hand_and_what_is_refused():
    pytest.importorskip("sksurv")
    y = torch.tensor([[1.0, 1.0], [2.0, 0.0], [3.0, 1.0], [4.0, 1.0]])
    assert concordance_index(torch.tensor([4.0, 1.0, 2.0, 3.0]), y) == pytest.approx(3 / 4)
    assert concordance_index(torch.zeros(4), y) == 0.5
    with pytest.raises(ValueError, match="no two rows of y can be compared"):
        concordance_index(torch.zeros(2), y[1:2].expand(2, 2))
    with pytest.raises(ValueError, match=r"risk must have shape \(N,\)"):
        concordance_index(torch.zeros(4, 1), y)
    with pytest.raises(ValueError, match="both be finite"):
        concordance_index(torch.tensor([0.0, 1.0, torch.nan, 1.0]), y)
