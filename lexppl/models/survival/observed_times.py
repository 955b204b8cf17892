"""What an observed survival time can be."""

from torch import Tensor
from torch.distributions.constraints import Constraint


class _SurvivalTimes(Constraint):
    """Rows of a positive time, an event of 0 or 1, and perhaps a stratum: `(…, 2 or 3)`."""

    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        time, event = value[..., 0], value[..., 1]
        return (time > 0) & time.isfinite() & ((event == 0) | (event == 1))


survival_times = _SurvivalTimes()
