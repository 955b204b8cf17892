"""Gradient estimators, chosen for an objective or per site by `infer={"estimator": …}`."""
