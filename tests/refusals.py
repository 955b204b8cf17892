"""A call that is refused, in one line."""

import pytest


def refused(message, call, *args, error=ValueError, **options):
    """Require that a call is refused with a message; its error."""
    with pytest.raises(error, match=message) as caught:
        call(*args, **options)
    return caught.value
