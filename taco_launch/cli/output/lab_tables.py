"""Labs as `lab status` shows them."""

from typing import TYPE_CHECKING, Any

import click

from taco_launch.cli.output import render

if TYPE_CHECKING:
    from taco_launch.lab.docker.labels import LabHost
    from taco_launch.lab.status import Status


def document(found: "Status") -> dict[str, Any]:
    """Return a lab as JSON shows it."""
    return {
        "name": found.lab,
        "complete": found.complete,
        "hosts": [
            {
                "name": seen.host.name,
                "state": seen.state,
                "address": seen.host.address,
                "slots": 0 if seen.host.is_registry else seen.host.slots,
                "release": None if seen.host.is_registry else seen.host.release or None,
                "simulated_gpus": _gpus(seen.host),
                "faults": list(seen.faults),
                "ssh": seen.ssh,
            }
            for seen in found.hosts
        ],
        "registry": {
            "address": found.registry,
            "user": found.user,
            "password_file": found.password_file or None,
            "authority_file": found.authority_file or None,
        },
        "training_image": found.image or None,
    }


def show(found: "Status", *, first: bool) -> None:
    """Print a lab; what is not this user's to have, as another made the lab, is not named."""
    if not first:
        click.echo()
    of = next((f", of {seen.host.release}" for seen in found.hosts if seen.host.release), "")
    lab = found.option
    up = f"taco-launch lab up{lab}"
    click.echo(f"Lab:      {found.lab}{of}{'' if found.complete else f' (incomplete; to continue: {up})'}")
    push = f"taco-launch lab push{lab} IMAGE"
    none = (
        f"no image ({up} adds one if it is run from a checkout; or use {push})"
        if found.password_file
        else "not known here"
    )
    password = f"password in {found.password_file}" if found.password_file else "its password is not stored here"
    click.echo(f"Registry: {found.registry}, user {found.user}, {password}")
    click.echo(f"Training: {found.image or none}")
    if found.password_file:
        login = f"docker login -u {found.user} --password-stdin {found.registry} <{found.password_file}"
        click.echo(f"Log in:   taco-launch lab exec{lab} gpu1 -- {login}")
    if not all(seen.ssh for seen in found.hosts):
        click.echo(
            f"Keys:     not here: the lab was made by another user or with another TACO_LAUNCH_STATE ({up} adds yours)"
        )
    click.echo()
    rows = [
        [
            seen.host.name,
            seen.state,
            seen.host.address,
            "" if seen.host.is_registry else str(seen.host.slots),
            f"{_gpus(seen.host)} (simulated)" if _gpus(seen.host) else "none",
            ", ".join(seen.faults) or "none",
            seen.ssh or f"taco-launch lab exec{lab} {seen.host.name} -- bash",
        ]
        for seen in found.hosts
    ]
    render.table(["HOST", "STATE", "ADDRESS", "SLOTS", "GPUS", "FAULTS", "TO ENTER"], rows, numbers=("SLOTS",))


def _gpus(host: "LabHost") -> str | None:
    """Return the machine that is simulated in a host, None for none."""
    return None if host.is_registry or host.gpus == "none" else host.gpus
