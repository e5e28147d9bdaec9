"""How hard Hypothesis tries, by name: `default` in every run, `deep` with `--hypothesis-profile=deep`."""

from hypothesis import HealthCheck, settings

_PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}

# The same examples in every run, on every machine: a failure is a change of the code, never of the dice.
settings.register_profile("default", max_examples=50, derandomize=True, database=None, **_PATIENT)
settings.register_profile("deep", max_examples=2_000, derandomize=False, **_PATIENT)
settings.load_profile("default")
