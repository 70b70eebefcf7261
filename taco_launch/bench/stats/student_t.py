"""Student's t and what else intervals and verdicts need of scipy, which is an extra: a missing one is one clear line."""

import math

from taco_launch.core.errors import TacoLaunchError

try:
    import numpy as np
    from scipy.special import polygamma, psi, roots_legendre, stdtr, stdtrit
except ImportError as error:
    raise TacoLaunchError(
        f"intervals and verdicts of benchmarks need scipy: {error}", "pip install 'taco-launch[bench]'"
    ) from error

_NODES, _WEIGHTS = roots_legendre(48)
_NODES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2  # from -1..1 to 0..1
_NEVER = 1e-30  # older releases of scipy find no quantile far below


def tail(t: float, freedom: float) -> float:
    """Return the probability that Student's t with so many degrees of freedom is above `t`."""
    return float(stdtr(freedom, -t))


def quantile(above: float, freedom: float) -> float:
    """Return the t that is exceeded with the probability `above`."""
    return -float(stdtrit(freedom, above))


def both_tail(t: float, other: float, correlation: float, freedom: float) -> float:
    """Return the probability that two t, which share their estimate of the spread, are above `t` and above `other`.

    That is the bivariate t distribution. Given the first at x, the second is t with one more degree of freedom, around
    correlation * x, its scale sqrt((1 - correlation^2) (freedom + x^2) / (freedom + 1)); that is integrated over the
    first's tail by Gauss's rule. Where the first alone is as good as impossible, its probability is given.
    """
    above = tail(t, freedom)
    if above < _NEVER:
        return above
    x = -stdtrit(freedom, _NODES * above)
    scale = np.sqrt((1 - correlation**2) * (freedom + x * x) / (freedom + 1))
    return above * float(np.dot(_WEIGHTS, stdtr(freedom + 1, (correlation * x - other) / scale)))


def log_chi2(freedom: float) -> tuple[float, float]:
    """Return mean and variance of log(chi^2 / freedom): by how much the log of an estimated variance is off."""
    half = freedom / 2
    return float(psi(half)) - math.log(half), float(polygamma(1, half))


def inverse_trigamma(value: float) -> float:
    """Return the x whose trigamma is `value` (above 0), by Newton's steps on 1 / trigamma, which is nearly a line.

    From 0.5 + 1 / value on, the steps approach it from one side (Smyth 2004, Linear models and empirical Bayes
    methods, appendix).
    """
    x = 0.5 + 1 / value
    for _step in range(50):
        at = float(polygamma(1, x))
        step = at * (1 - at / value) / float(polygamma(2, x))
        x += step
        if abs(step) < 1e-9 * x:
            break
    return x
