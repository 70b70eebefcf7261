"""trust: the host keys of an inventory's hosts, shown and then kept."""

import sys
from collections.abc import Callable, Sequence

import click

from taco_launch.cli.options.common import Settings, access_of, add_option, settings_of, verb
from taco_launch.cli.options.completion import complete_hosts
from taco_launch.cli.output import host_errors, render
from taco_launch.core.command import shell
from taco_launch.core.errors import FAILED, HOST_FAILED, UsageError
from taco_launch.hosts import trust as flow
from taco_launch.hosts.inventory.ranges import fold
from taco_launch.hosts.inventory.select import named
from taco_launch.hosts.ssh.host_key_policy import trust_line
from taco_launch.hosts.trust import ShownKey


@verb(inventory=True, output=True)
@click.argument("hosts", nargs=-1, metavar="[HOST]...", shell_complete=complete_hosts)
@add_option("--yes", is_flag=True, help="Do not ask: accept every new key.")
@add_option("--replace", is_flag=True, help="Accept changed keys as well, such as those of reinstalled hosts.")
def trust(ctx: click.Context, hosts: tuple[str, ...], *, yes: bool, replace: bool) -> int:
    """Show and store the SSH host keys of hosts.

    They are kept in taco-launch's own known_hosts file; ~/.ssh is read, and never written. Compare the fingerprints
    with what the hosts' consoles say: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub

    \b
    Examples:
      taco-launch -i cluster.yaml trust
      taco-launch -i cluster.yaml trust --yes gpu[1-4]
      taco-launch trust -i cluster.yaml --replace gpu3
    """
    settings = settings_of(ctx)
    inventory = settings.load()
    chosen = named(inventory, hosts)
    ways = flow.prepare(inventory, chosen, access_of({}))
    with render.progress(settings, "host keys", len(chosen)) as progress:
        found = flow.read_host_keys(ways, lambda _answer: progress())
    show_keys(settings, found.shown)
    for group in found.alike:
        settings.talk(
            f"{fold(key.host for key in group)} have the same host key: they are the same machine with several addresses, "
            "or copies of one; an inventory must name a machine only once"
        )
    host_errors.show(found.failed, {host.name: host.address for host in chosen})
    keys, refused = found.to_write(replace=replace), found.refused(replace=replace)
    show_refused(refused, lambda key: trust_line(inventory.source, key.host, replace=True))
    if keys and not confirm_host_keys(settings, keys, found.file, yes=yes):
        return FAILED
    if found.failed:
        return HOST_FAILED
    return FAILED if refused else 0


def show_refused(keys: Sequence[ShownKey], line: Callable[[ShownKey], str]) -> None:
    """Print why keys are not taken; `line` is what to type for one of a host that was reinstalled."""
    for key in keys:
        render.error(
            "\n".join(
                [
                    f"{key.host}: its host key is {key.state}; what is known of it:",
                    *(f"  {known}" for known in key.known),
                ]
            ),
            f"if the host was reinstalled: {line(key)}"
            if key.state == flow.CHANGED
            else "ask the person who revoked the key for the reason",
        )


def confirm_host_keys(settings: Settings, keys: Sequence[ShownKey], file: str, *, yes: bool) -> bool:
    """Ask whether to keep keys in our known_hosts `file`, and keep them; tell whether that was done.

    Raises:
        UsageError: stdin is not a terminal, so the question cannot be asked.
        HostError: the file cannot be written.
    """
    if not _agreed(len(keys), yes=yes):
        settings.talk("kept none")
        return False
    flow.write(tuple(keys))
    settings.talk(f"stored {render.counted(len(keys), 'host key')} in {file}")
    for key in keys:
        for other in key.elsewhere:
            command = shell(("ssh-keygen", "-R", key.known_as, "-f", other))
            settings.talk(f"{key.host}: its old key is still in {other}; to remove it for ssh too: {command}")
    return True


def _agreed(count: int, *, yes: bool) -> bool:
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError(
            f"{render.counted(count, 'host key')} to accept, but stdin is not a terminal",
            hint="compare the fingerprints, then add --yes",
        )
    return click.confirm(f"accept {render.counted(count, 'host key')}?", err=True)


def show_keys(settings: Settings, keys: Sequence[ShownKey]) -> None:
    """Print keys with their fingerprints."""
    if settings.output in ("json", "yaml"):
        rows = [
            {
                "host": key.host,
                "type": key.kind,
                "fingerprint": key.fingerprint,
                "state": key.state,
                "known": list(key.known),
            }
            for key in keys
        ]
        render.data(rows, settings.output)
    elif keys:
        render.table(
            ("HOST", "TYPE", "FINGERPRINT", "STATE"),
            [(key.host, key.kind, key.fingerprint, key.state) for key in keys],
        )
