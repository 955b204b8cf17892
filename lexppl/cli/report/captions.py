"""What stands below the report's pictures and tables."""

from lexppl.cli.judged.judging import SizeCurve
from lexppl.cli.report.findings import ReportData
from lexppl.cli.report.which_way import CLEAR, about
from lexppl.cli.report.words import what_is_found
from lexppl.evaluation.effects import LEAST_KEPT


def ranking_notes(findings: ReportData) -> list[str]:
    """What the bars and the columns of the ranking are."""
    gains, kind = findings.gains, findings.kind
    over = (
        ", with 95 % intervals of their posterior"
        if findings.plan.posterior is not None
        else f", with their range over the {findings.plan.replicates} fits"
        if findings.source.fold is not None
        else f", with 95 % intervals over the {findings.plan.replicates} replicates"
        if findings.plan.replicates > 1
        else ""
    )
    if gains is None:
        return [f"Ranked by {kind.meaning}, mean over held-out rows and replicates{over}."]
    notes = [
        f"Ranked by gain, in nats a row. {what_is_found(gains)}"
        + " They stand in grey." * bool(gains.lost)
        + " Below a group that is found stand members that are found, and those kept most, by what "
        "they say beyond the rest of it."
        * bool((gains.groups["members"] > 1).any())
        + " A bar is the gain, the line on it its interval, which may go on beyond the track. "
        f"Kept: {kind.meaning}, mean over rows and replicates."
    ]
    towards = about(findings)
    if findings.closer.directions is not None and towards is not None:
        what = (
            "the mean response"
            if findings.source.data.class_names is None
            else f"the log-odds of {towards}"
        )
        notes.append(
            f"Direction: how {what} that the explainer predicts move with the feature's value, "
            "from −1 to 1, over the held-out rows that keep the feature: the rank correlation of "
            "the value with what revealing it changes. ↑ rises with the value, ↓ falls (from "
            f"±{CLEAR:g}), ~ neither throughout; of words, the levels that raise and lower it "
            f"most, by more than replicates differ; – where fewer than {LEAST_KEPT:g} rows keep "
            "it. It speaks of the prediction, not of a cause."
        )
    return notes


def swarm_caption(findings: ReportData) -> str:
    """What the swarm shows."""
    what = (
        findings.kind.meaning
        if findings.gains is None
        else "what the feature is worth for its prediction, in nats"
    )
    return (
        f"Each point is a held-out row: {what}, mean over replicates. Its colour is the feature's "
        "value, from low (blue) to high (orange); features of words are grey. Points left of 0 are "
        "rows that are predicted worse with the feature than without."
        if findings.gains is not None
        else f"Each point is a held-out row: {what}, mean over replicates. Its colour is the "
        "feature's value, from low (blue) to high (orange); features of words are grey."
    )


def single_note(findings: ReportData) -> str:
    """How to read a row's bars."""
    if findings.source.data.class_names is None:
        what, unit = "the mean response", "in the units of the target"
    else:
        what, unit = "the log-probability of the label that is predicted", "in nats"
    return (
        f"Each bar is what revealing the feature adds to {what}, {unit}, averaged over masks, "
        "imputations and replicates; the bars add up to the prediction exactly. Features are "
        "revealed in the order in which this row keeps them, the most kept first, so that of two "
        "that say the same the first has the bar; those that add least share one, the last. Blue "
        "raises, orange lowers. For other rows give --row N."
    )


def sizes_caption(curve: SizeCurve, measure: str) -> str:
    """What the curve of sizes shows."""
    return (
        f"EVAL-X's {measure} on {curve.rows} held-out rows where each row keeps only its "
        "k most important features, against as many features chosen at random. A curve that "
        "rises early and stays above the random one says that the ranking puts first what "
        "there is to know. The dashed line is EVAL-X with every feature."
    )
