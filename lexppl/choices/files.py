"""Files that a report writes, and what is in them."""

from collections.abc import Mapping

POSTERIOR, IMPORTANCE, REPORT = "posterior.nc", "importance.csv", "report.html"
EXPLAINER, ENCODING, PATH = "explainer", "encoding.json", "penalty_path.csv"
CERTIFIED = "certified.csv"
DIRECTIONS, ROWS, GROUPS = "directions.csv", "rows.csv", "groups.csv"
PREDICTIONS = "predictions.csv"
VOCABULARY, TEXTS = "vocabulary.json", "texts.json"
MODEL = (EXPLAINER, ENCODING, VOCABULARY, TEXTS)
"""What is written of the model, before what follows from it."""
MEANINGS: Mapping[str, str] = {
    REPORT: "",
    GROUPS: "the ranked groups, with intervals, agreement, gains and p-values",
    IMPORTANCE: "the ranked {entries}, with intervals, and with groups, gains and p-values where "
    "they are known",
    DIRECTIONS: "which way each feature moves the prediction, by class and level",
    ROWS: "the single rows of this page, step by step",
    CERTIFIED: "features enough for each prediction",
    PATH: "features kept and held-out log-likelihood at each penalty tried",
    POSTERIOR: "{draws} mask draws a row and replicate, given the row alone (prior) and its "
    "response too (posterior), for ArviZ; with the rows' log-likelihood, and their values and "
    "gains where they are known",
    EXPLAINER: "the fitted model{held}",
    ENCODING: "how the table's columns became features",
    VOCABULARY: "the words that it knows, with their numbers",
    TEXTS: "how many words of a text it reads, and which end of a longer one",
}
"""Files of a report and their meanings, the report first."""
OUTPUTS = (*MEANINGS, PREDICTIONS)
DIGITS = "%.4g"  # Of numbers in tables; posterior.nc has all
