"""Survival times: Cox's partial likelihood, and proportional hazards with a known baseline."""
