"""Names of latents by the place of their part in a program."""

from pyro.nn import PyroModule


def name_by_place(program: PyroModule) -> None:
    """Let each Pyro part name its latents by where it stands, and draw them once a call.

    Pyro does so along an unbroken line of Pyro modules. Below a plain torch module a part would
    name its latents by itself alone, `weight` for `selector.network.weight`, so that two of them
    could not be told apart.

    Args:
        program: the whole, which is not being called.

    Example:
        >>> import pyro, torch
        >>> from lexppl.models import HorseshoeLinear
        >>> class Program(PyroModule):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.selector = torch.nn.Sequential(HorseshoeLinear(2, 1))
        ...         name_by_place(self)
        ...     def forward(self, x):
        ...         return self.selector(x)
        >>> with torch.random.fork_rng():
        ...     trace = pyro.poutine.trace(Program()).get_trace(torch.zeros(1, 2))
        >>> trace.stochastic_nodes[0]
        'selector.0.global_scale'
    """
    for path, part in program.named_modules():
        if path and isinstance(part, PyroModule):
            part._pyro_name = path
            part._pyro_context = program._pyro_context
