"""The table of models from wheels."""

from typing import Any

Record = dict[str, Any]
OURS, SHAP = "ours", "shap"


def real_models_table(records: list[Record]) -> str:
    """What is found of what a model reads, and for how many calls."""
    rows = [
        "| model | case | columns read | TPR, FDR | calls | SHAP: TPR, FDR | calls for five rows "
        "| SHAP's for the rows of ours | seconds |",
        "|---" * 9 + "|",
    ]
    for record in sorted(records, key=lambda r: (r["model"], r["seed"])):
        ours, shap = record[OURS], record[SHAP]
        rows.append(
            f"| {record['model']} | {record['case']} | {record['true']} of {record['columns']} | "
            f"{ours['tpr']:.3f}, {ours['fdr']:.3f} | {ours['calls']:,} | "
            f"{shap['tpr']:.3f}, {shap['fdr']:.3f} | {shap['calls']:,} | {shap['defaults']:,} | "
            f"{record['seconds']:.0f} |"
        )
    return "\n".join(rows)
