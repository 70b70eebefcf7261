"""metrics: jobs, queues and slots as Prometheus reads them."""

import os
import re
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taco_launch.bench import nightly_metrics as nights
from taco_launch.bench.nightly.install import local_zone
from taco_launch.cli.options.common import Settings, access_of, add_option, complete_file, settings_of, verb
from taco_launch.cli.output import render
from taco_launch.core.errors import HostError, UsageError
from taco_launch.jobs.metrics import collect as flow
from taco_launch.jobs.metrics.families import rendered
from taco_launch.jobs.metrics.listen import Server

if TYPE_CHECKING:
    from taco_launch.jobs.metrics.collect import Collector

_LOOPBACK = "127.0.0.1"
_PLACE = re.compile(r"(?:(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<address>[^:\[\]]+)):)?(?P<port>\d{1,5})")
_MOST_PORT = 65535


def _place(_ctx: click.Context, _param: click.Parameter, text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    found = _PLACE.fullmatch(text)
    if found is None or int(found["port"]) > _MOST_PORT:
        raise click.BadParameter(f"{text!r}: must be PORT, ADDRESS:PORT or [IPV6]:PORT")
    return found["six"] or found["address"] or _LOOPBACK, int(found["port"])


@verb(access=True)
@add_option("--rules", is_flag=True, help="Print alert rules for Prometheus, and contact no host.")
@add_option(
    "--textfile",
    type=click.Path(path_type=Path),
    metavar="FILE",
    shell_complete=complete_file,
    help="Write the metrics to this file atomically, for node_exporter's textfile collector.",
)
@add_option(
    "--listen",
    "place",
    metavar="[ADDR:]PORT",
    callback=_place,
    help=f"Serve the metrics at http://ADDR:PORT/metrics until Ctrl-C. Default of ADDR: {_LOOPBACK}.",
)
@add_option(
    "--compat",
    type=click.Choice(["mpi-operator"]),
    help="Also write the MPI Operator's metrics, under its names, for dashboards that exist.",
)
@add_option(
    "--allow-host",
    "names",
    metavar="NAME",
    multiple=True,
    help="With --listen: a name that clients may use for this machine, besides its own name and its addresses.",
)
def metrics(
    ctx: click.Context,
    /,
    *,
    rules: bool,
    textfile: Path | None,
    place: tuple[str, int] | None,
    compat: str | None,
    names: tuple[str, ...],
    **access: Any,
) -> None:
    """Export jobs, queues, slots and nightly runs as Prometheus metrics.

    The counters count all jobs of the head, also those whose records were removed by delete, prune or their ttl, but not
    those that were refused at once, which have no record. If the head does not answer, its taco_launch_host_ready is 0, and
    the exit code is 5. `--rules` prints alert rules for Prometheus.

    \b
    Names, and those that the MPI Operator has for the same:
      taco_launch_jobs_created_total            mpi_operator_jobs_created_total
      taco_launch_jobs_successful_total         mpi_operator_jobs_successful_total
      taco_launch_jobs_failed_total             mpi_operator_jobs_failed_total
      taco_launch_job_info{launcher,namespace}  mpi_operator_job_info{launcher,namespace}
    namespace is the cluster of the inventory, launcher NAME-launcher; `--compat mpi-operator` writes both. Also:
      taco_launch_jobs_cancelled_total, taco_launch_jobs{state},
      taco_launch_job_verified{launcher,namespace,status} with the status True, False or Unknown,
      taco_launch_job_step{launcher,namespace}, taco_launch_job_steps{launcher,namespace},
      taco_launch_job_rate{launcher,namespace} and taco_launch_job_loss{launcher,namespace}, if a program prints them,
      taco_launch_queue_length{queue}, taco_launch_queue_wait_seconds{queue} (a histogram),
      taco_launch_slots{host,state} with the states total, allocated, foreign and unknown,
      taco_launch_host_ready{host}, taco_launch_host_drained{host}, taco_launch_build_info{version},
      taco_launch_host_drain_info{host,kind,by} with the kinds node and user, by person or policy,
      taco_launch_host_drain_timestamp_seconds{host}, taco_launch_job_hung{launcher,namespace},
      taco_launch_job_restarts{launcher,namespace}, taco_launch_job_goodput{launcher,namespace}
    with the labels launcher, namespace and host, what a running job uses on each host, of the last minute:
      taco_launch_job_gpu_use_ratio, taco_launch_job_gpu_memory_ratio,
      taco_launch_job_network_receive_bytes_per_second, taco_launch_job_network_transmit_bytes_per_second,
      taco_launch_job_rdma_receive_bytes_per_second, taco_launch_job_rdma_transmit_bytes_per_second
    of nightly runs that this machine records, for the user that runs this command:
      taco_launch_night_outcome{night,outcome}, taco_launch_night_ratio{night,cell,metric,hosts,gpu},
      taco_launch_night_start_timestamp_seconds{night}, taco_launch_night_end_timestamp_seconds{night},
      taco_launch_night_due_timestamp_seconds{night}

    \b
    Examples:
      taco-launch metrics
      taco-launch metrics --rules > taco-launch.rules.yml
      taco-launch metrics --textfile /var/lib/node_exporter/taco-launch.prom     (from cron, every minute)
      taco-launch -i cluster.yaml metrics --listen 9464
      taco-launch -i cluster.yaml metrics --listen 9464 --compat mpi-operator
      taco-launch -i cluster.yaml metrics --listen 0.0.0.0:9464 --allow-host head.example.org
    """
    if rules and (textfile is not None or place is not None):
        raise UsageError("--rules prints the rules alone", hint="taco-launch metrics --rules > taco-launch.rules.yml")
    if rules:
        click.echo(flow.rules(), nl=False)
        return
    if textfile is not None and place is not None:
        raise UsageError("--textfile and --listen cannot be combined")
    if names and place is None:
        raise UsageError("--allow-host requires --listen")
    settings = settings_of(ctx)
    backend, inventory = settings.backend(access_of(access)), settings.load()
    mpi_operator = compat == "mpi-operator"

    if place is not None:
        _serve(settings, place, names, flow.Collector(backend, inventory, mpi_operator=mpi_operator))
        return

    of_nights, unreadable = _of_nights()

    def give(text: bytes) -> None:
        text += of_nights
        if textfile is not None:
            flow.write(textfile, text)
        else:
            click.echo(_safe(text), nl=False)

    try:
        found, warnings = flow.collect(backend, inventory, mpi_operator=mpi_operator)
    except HostError as error:
        give(flow.silent_head(inventory))
        render.error(error.message, error.hint)  # raised, it would be a document of JSON beside the text
        ctx.exit(error.exit_code)
    for warning in (*warnings, *unreadable):
        render.warning(settings, warning)
    give(found)


def _of_nights() -> tuple[bytes, tuple[str, ...]]:
    """Return the metrics of this user's nightly runs on this machine, and warnings."""
    results, warnings = nights.results(os.environ, os.geteuid(), datetime.now(local_zone()[0]))
    return rendered(nights.families(results)), warnings


def _safe(found: bytes) -> bytes:
    """Return metrics as they are, on a terminal without what would control that: jobs and hosts name themselves."""
    if not sys.stdout.isatty():
        return found
    return "\n".join(map(render.printable, found.decode("utf-8").split("\n"))).encode()


def _serve(settings: Settings, place: tuple[str, int], names: tuple[str, ...], collector: "Collector") -> None:
    told: tuple[str, ...] = ()

    def collect() -> bytes:
        nonlocal told
        found, warnings = collector.collect()
        of_nights, unreadable = _of_nights()
        warnings += unreadable
        for warning in warnings:
            if warning not in told:  # a host that stays away is told once
                render.warning(settings, warning)
        told = warnings
        return found + of_nights

    try:
        server = Server(*place, collect, names)
    except OSError as error:
        raise UsageError(
            f"--listen {place[0]} port {place[1]}: {error.strerror or error}",
            hint="name an address of this machine and a free port",
        ) from None
    with server:
        settings.talk(f"listening: {server.url}")
        server.serve_forever()
