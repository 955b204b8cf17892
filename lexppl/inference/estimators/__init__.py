"""Gradient estimators: values, chosen once for an objective or per site by
`infer={"estimator": …}`."""
