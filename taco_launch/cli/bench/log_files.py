"""The log of a benchmark, as a file or on standard input."""

import click

from taco_launch.bench.logs import MOST_BYTES


def read_log(log: str) -> str:
    """Return the text of a file, or with `-` of standard input.

    Raises:
        click.UsageError: it cannot be read, or is too large.
    """
    try:
        with click.open_file(log, "rb") as file:
            content: bytes = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise click.UsageError(f"{log}: {error.strerror}") from None
    if len(content) > MOST_BYTES:
        raise click.UsageError(f"{log}: larger than {MOST_BYTES >> 20} MiB: keep only the output of the run to be read")
    return content.decode("utf-8", "replace")
