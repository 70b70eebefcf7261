"""Student's t and what else intervals and verdicts need of scipy, which is an extra: a missing one is one clear line."""

import functools
import math
from types import ModuleType
from typing import Any

from taco_launch.core.errors import TacoLaunchError

_NEVER = 1e-30  # older releases of scipy find no quantile far below


@functools.cache
def special() -> ModuleType:
    """Return scipy's special functions, imported at the first call: a single run needs none.

    Raises:
        TacoLaunchError: scipy is not installed; says how it is.
    """
    try:
        from scipy import special as found  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise TacoLaunchError(
            f"intervals and verdicts of benchmarks need scipy: {error}", "pip install 'taco-launch[bench]'"
        ) from error
    return found  # type: ignore[no-any-return]


@functools.cache
def _gauss() -> tuple[Any, Any]:
    """Return the nodes, from 0 to 1, and the weights of Gauss's rule."""
    nodes, weights = special().roots_legendre(48)
    return (nodes + 1) / 2, weights / 2


def tail(t: float, freedom: float) -> float:
    """Return the probability that Student's t with so many degrees of freedom is above `t`."""
    return float(special().stdtr(freedom, -t))


def quantile(above: float, freedom: float) -> float:
    """Return the t that is exceeded with the probability `above`."""
    return -float(special().stdtrit(freedom, above))


def both_tail(t: float, other: float, correlation: float, freedom: float) -> float:
    """Return the probability that two t, which share their estimate of the spread, are above `t` and above `other`.

    That is the bivariate t distribution. Given the first at x, the second is t with one more degree of freedom, around
    correlation * x, its scale sqrt((1 - correlation^2) (freedom + x^2) / (freedom + 1)); that is integrated over the
    first's tail by Gauss's rule. Where the first alone is as good as impossible, its probability is given.
    """
    above = tail(t, freedom)
    if above < _NEVER:
        return above
    nodes, weights = _gauss()
    x = -special().stdtrit(freedom, nodes * above)
    scale = ((1 - correlation**2) * (freedom + x * x) / (freedom + 1)) ** 0.5
    return above * float(weights @ special().stdtr(freedom + 1, (correlation * x - other) / scale))


def log_chi2(freedom: float) -> tuple[float, float]:
    """Return mean and variance of log(chi^2 / freedom): by how much the log of an estimated variance is off."""
    half = freedom / 2
    return float(special().psi(half)) - math.log(half), float(special().polygamma(1, half))


def inverse_trigamma(value: float) -> float:
    """Return the x whose trigamma is `value` (above 0), by Newton's steps on 1 / trigamma, which is nearly a line.

    From 0.5 + 1 / value on, the steps approach it from one side (Smyth 2004, Linear models and empirical Bayes
    methods, appendix).
    """
    x = 0.5 + 1 / value
    for _step in range(50):
        at = float(special().polygamma(1, x))
        step = at * (1 - at / value) / float(special().polygamma(2, x))
        x += step
        if abs(step) < 1e-9 * x:
            break
    return x
