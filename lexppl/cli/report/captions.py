"""What stands below the report's pictures and tables."""

from lexppl.cli.judged.judging import SizeCurve
from lexppl.cli.report.findings import ReportData
from lexppl.cli.report.which_way import CLEAR, about
from lexppl.evaluation.effects import LEAST_KEPT


def ranking_notes(findings: ReportData) -> list[str]:
    """What the bars and the columns of the ranking are."""
    gains, kind = findings.gains, findings.kind
    if gains is None:
        return [f"Ranked by {kind.meaning}, mean over held-out rows and replicates."]
    notes = [
        "Ranked by gain, in nats a row. Groups that are not found stand in grey. Below a group of "
        "several stand members that are found, and those kept most, by what they say beyond the "
        "rest of it. A bar is the gain, the line on it its interval, which may go on beyond the "
        f"track. Kept: {kind.meaning}, mean over rows and replicates."
    ]
    towards = about(findings)
    if findings.closer.directions is not None and towards is not None:
        what = "" if findings.source.data.class_names is None else "the log-odds of "
        notes.append(
            f"Direction: the rank correlation of the feature's value with what revealing it adds "
            f"to {what}{towards} in the held-out rows that keep it: ↑ rises with the value, ↓ "
            f"falls (from ±{CLEAR:g}), ~ neither throughout; of words, the levels that raise and "
            f"lower it most, by more than replicates differ; – where fewer than {LEAST_KEPT:g} "
            "rows keep it. It speaks of the prediction, not of a cause."
        )
    return notes


def swarm_caption(findings: ReportData) -> str:
    """What the swarm shows."""
    what, gains = findings.kind.meaning, ""
    if findings.gains is not None:
        what = "what the feature is worth for its prediction, in nats"
        gains = " Points left of 0 are rows that are predicted worse with the feature than without."
    return (
        f"Each point is a held-out row: {what}, mean over replicates. Its colour is the feature's "
        f"value, from low (blue) to high (orange); features of words are grey.{gains}"
    )


def single_note(findings: ReportData) -> str:
    """How to read a row's bars."""
    if findings.source.data.class_names is None:
        what, unit = "the mean response", "in the units of the target"
    else:
        what, unit = "the log-probability of the label that is predicted", "in nats"
    return (
        f"Each bar is what revealing the feature adds to {what}, {unit}, mean over masks, "
        "imputations and replicates; they add up to the prediction. Features are revealed in the "
        "order in which this row keeps them, so that of two that say the same the first has the "
        "bar; those that add least share the last. For other rows give --row N."
    )


def sizes_caption(curve: SizeCurve, measure: str) -> str:
    """What the curve of sizes shows."""
    return (
        f"EVAL-X's {measure} on {curve.rows} held-out rows where each row keeps only its "
        "k most important features, against as many at random. A curve that rises early and stays "
        "above the random one says that the ranking puts first what there is to know."
    )
