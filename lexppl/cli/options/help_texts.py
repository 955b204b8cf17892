"""What the commands say of themselves."""

from lexppl.choices.compared import LIBRARIES
from lexppl.choices.data_sets import TARGETS, image_names, synthetic_names, text_names
from lexppl.choices.imputers import IMPUTERS, LEARNED
from lexppl.choices.methods import METHODS

DESCRIPTION = """\
Explain predictions: learn which features of each row a prediction needs, and how sure that is.

commands:
  explain    fit an explainer on a data set and write what it found: a report, tables, a posterior
  evaluate   fit an explainer on a synthetic set, whose relevant features are known, and judge it
  compare    put methods side by side on a data set, this library's and others, under one judge
  impute     score imputers by what they make of hidden values, so that one can be chosen

examples:
  lexppl explain breast_cancer --out results
  lexppl explain houses.csv --target price --out results
  lexppl evaluate S3
  lexppl compare wine --methods lex,real_x,shap
  lexppl impute breast_cancer

`lexppl COMMAND --help` lists all options of a command."""

EXPLAIN = """\
Fit an explainer (LEX, or another --method) on a data set and write what it found.

For each row the explainer chooses the features that it needs to predict the target, hides the
others, and predicts. Features are ranked by what keeping them is worth on held-out rows, with how
often they are kept beside it. Several replicates are fitted from different seeds, so that you see
whether they agree."""

EXPLAIN_MORE = f"""\
data sets that need no file:
  {", ".join(TARGETS)}
  with known truth: {", ".join(synthetic_names())}
data sets of images and texts, whose files lie under --root:
  {", ".join(image_names())},
  {", ".join(text_names())}

what is written to --out:
  report.html     everything in one page: open it in a browser
  groups.csv      groups of features by what they are worth, with intervals and agreement
  importance.csv  the features, with their groups, gains, intervals and agreement
  directions.csv  which way each feature moves the prediction, by class and level
  rows.csv        single rows feature by feature: those of --row, or three held-out ones
  penalty_path.csv  the penalties tried, where --penalty is auto
  posterior.nc    the posterior of the masks, for ArviZ: arviz.from_netcdf("posterior.nc")
  explainer/      the fitted model: lexppl.load("explainer")
  encoding.json   how columns became features (not for synthetic sets)
  of images and texts: no directions.csv; importance.csv has the patches, or the words by how much
  of them is kept; vocabulary.json and texts.json say how texts are read

examples:
  lexppl explain breast_cancer --out results
  lexppl explain wine --k 3 --replicates 8 --out results
  lexppl explain breast_cancer --row 17 --row 230 --out results
  lexppl explain houses.csv --target price --drop-missing --out results
  lexppl explain wine --method l2x --k 3 --out results
  lexppl explain new_houses.csv --with results --out explained
  lexppl explain patients.csv --target outcome --black-box model.joblib --trust-black-box --out r
  lexppl explain mnist --root ~/data --patches 4 --out results
  lexppl explain radiographs/ --size 64 --grayscale --out results
  lexppl explain reviews.csv --text review --target stars --keep-words end --out results

Ctrl-C ends the fit; the best state so far is still written. Ctrl-C again ends without."""

EVALUATE = """\
Fit an explainer on a synthetic set and judge it against the truth: how many of the relevant
features it finds (TPR), how many of those it selects are not relevant (FDR), and how far its
predictions are from the best possible ones (the oracle)."""

EVALUATE_MORE = f"""\
synthetic sets: {", ".join(synthetic_names())} (S1, S2, S3 are Syn4, Syn5, Syn6)

examples:
  lexppl evaluate S3
  lexppl evaluate S1 --k 5 --masks 10 --seed 1 --out scores.json"""


COMPARE = """\
Put methods side by side: each is fitted on the same rows, ranks the features of the same held-out
rows, and is judged by the same EVAL-X, a predictor that has seen every mask. Where the data set has
a truth, the share of it that is found is shown too."""

COMPARE_MORE = f"""\
methods of this library: {", ".join(METHODS)}
others (pip install "lexppl[compare]"): {", ".join(LIBRARIES)}

examples:
  lexppl compare breast_cancer --methods lex,real_x,l2x
  lexppl compare wine --methods lex,shap,lime,permutation --sizes 1,2,4
  lexppl compare S3 --methods lex,tabnet --out figures.json"""

IMPUTE = """\
Score what hidden features can be replaced with: each imputer is fitted on a part of the rows, and
draws the features that are hidden from held-out ones, given those that are kept. Figures are by the
share of features that is hidden, with their standard errors over rows: CRPS, in standard deviations
of a feature, the smaller the better; and, for imputers with a density, the log-likelihood of the
hidden values in nats each, the larger the better. Choose one for `lexppl explain --imputer`."""

_NAMED = "\n".join(f"  {name}: {meaning}" for name, meaning in {**IMPUTERS, **LEARNED}.items())

IMPUTE_MORE = f"""\
imputers, by what hidden features are replaced with:
{_NAMED}
  {", ".join(LEARNED)} takes longer, and is scored where it is named

examples:
  lexppl impute breast_cancer
  lexppl impute houses.csv --target price --imputers marginal,conditional-gaussian,vaeac
  lexppl impute wine --rates 0.25,0.75 --out imputers.json
  lexppl impute mnist --root ~/data --patches 4 --imputers marginal,gaussian-mixture"""
