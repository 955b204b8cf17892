"""Settings of estimators that are fitted in a moment."""


def small(**options):
    """Arguments of an estimator, with others."""
    usual = {"hidden": (8,), "predictor_hidden": (16,), "prediction_masks": 10, "random_state": 0}
    return {**usual, **options}
