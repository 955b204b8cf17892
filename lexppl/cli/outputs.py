"""What `lexppl explain` writes, by the names of the files."""

POSTERIOR, IMPORTANCE, REPORT = "posterior.nc", "importance.csv", "report.html"
EXPLAINER, ENCODING, PATH = "explainer", "encoding.json", "penalty_path.csv"
DIRECTIONS, ROWS = "directions.csv", "rows.csv"
OUTPUTS = (POSTERIOR, IMPORTANCE, REPORT, EXPLAINER, ENCODING, PATH, DIRECTIONS, ROWS)
