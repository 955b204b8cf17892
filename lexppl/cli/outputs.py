"""What `lexppl explain` writes, by the names of the files."""

POSTERIOR, IMPORTANCE, REPORT = "posterior.nc", "importance.csv", "report.html"
EXPLAINER, ENCODING, PATH = "explainer", "encoding.json", "penalty_path.csv"
DIRECTIONS, ROWS, GROUPS = "directions.csv", "rows.csv", "groups.csv"
VOCABULARY, TEXTS = "vocabulary.json", "texts.json"
MODEL = (EXPLAINER, ENCODING, VOCABULARY, TEXTS)
"""What is written of the model, before what follows from it."""
OUTPUTS = (*MODEL, POSTERIOR, IMPORTANCE, REPORT, PATH, DIRECTIONS, ROWS, GROUPS)
