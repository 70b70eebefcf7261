"""The rows of a translated script."""

from taco_launch.jobs.command_lines.script_translation import ScriptTranslation


def reasons(done: ScriptTranslation) -> dict[str, str]:
    """Return what no job has, with the reason."""
    rows = [*(row for _line, job in done.jobs for row in job.rows), *done.rows]
    return {row.original: row.why for row in rows if not row.here}
