"""Whole logs of a run of 4 ranks on 2 hosts, as NCCL writes them in each version: the format strings of its sources, filled in.

Simulated: no GPU is here. What really was captured is in `cases`, in excerpts.
"""

from taco_launch.core.model.run.observed import SeenRank, SeenRun
from taco_launch.core.model.run.planned import NcclPlan, PlannedHost, PlannedTransport, RunPlan
from taco_launch.core.verify.nccl_log import parse

VERSIONS = (
    "2.4.8",
    "2.5.7",
    "2.7.8",
    "2.9.9",
    "2.13.4",
    "2.17.1",
    "2.18.5",
    "2.20.5",
    "2.21.5",
    "2.23.4",
    "2.26.6",
    "2.28.9",
    "2.30.7",
    "2.31.2",
)
HOSTS = ("gpu1", "gpu2")
BUS = ("1a000", "1c000")


class Rank:
    """One rank of a run with a version of NCCL: rank 0 and 1 on gpu1, 2 and 3 on gpu2; the rings are 0 1 2 3."""

    def __init__(self, version: str, rank: int, network: str, host: str | None) -> None:
        self.version, self.rank, self.network = version, rank, network
        self.at = tuple(int(part) for part in version.split("."))
        self.device, self.host = rank % 2, host or HOSTS[rank // 2]
        self.prefix = f"{self.host}:{1000 + rank}:{2000 + rank} [{self.device}] NCCL INFO "
        self.address = f"eth0:10.0.0.{1 + rank // 2}<0>"

    def networks(self) -> list[str]:
        using = "[0]" if self.at < (2, 8) else ""
        colon = "Bootstrap :" if self.at < (2, 24) else "Bootstrap:"
        found = [f"{colon} Using {using}{self.address}"]
        if self.network == "IB":
            order = " [RO]" if self.at >= (2, 12) else " "
            found.append(f"NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE{order}; OOB {self.address}")
        else:
            found += ["NET/IB : No device found.", f"NET/Socket : Using [0]{self.address}"]
        if self.at >= (2, 28):
            found += [f"Initialized NET plugin {self.network}", f"Assigned NET plugin {self.network} to comm"]
        if self.at >= (2, 6):
            found.append(f"Using network {self.network}")
        return [self.prefix + line for line in found]

    def told_version(self) -> list[str]:
        line = f"NCCL version {self.version}+cuda12.4"
        if self.at >= (2, 24):
            return [self.prefix + line]
        return [line] if self.rank == 0 or self.at >= (2, 19) else []

    def member(self, world: int) -> str:
        nvml = f" nvmlDev {self.device}" if self.at < (2, 5) or self.at >= (2, 18) else ""
        bus = f" busId {BUS[self.device]}" if self.at >= (2, 5) else ""
        call = "ncclCommInitRank " if self.at >= (2, 21) else ""
        comm_id = " commId 0x3df49f6b4a2d4b1e" if self.at >= (2, 17) else ""
        who = f"rank {self.rank} nranks {world} cudaDev {self.device}"
        return f"{call}comm 0x7f0c{self.rank}000 {who}{nvml}{bus}{comm_id}"

    def start(self, world: int) -> list[str]:
        before = f"[Rank {self.rank}] " if self.at >= (2, 30) else ""
        return [f"{self.prefix}{before}{self.member(world)} - Init START"] if self.at >= (2, 18) else []

    def way(self, channel: int, source: int, target: int, end: str) -> str:
        word = "Ring" if self.at < (2, 7) else "Channel"
        index = "/0" if self.at >= (2, 12) else ""
        return f"{self.prefix}{word} {channel:02}{index} : {self.gpu(source)} -> {self.gpu(target)} {end}"

    def gpu(self, of: int) -> str:
        if self.at < (2, 5):
            return str(of)
        return f"{of}[{of % 2}]" if self.at >= (2, 18) else f"{of}[{BUS[of % 2]}]"

    def rings(self, gdr: bool) -> list[str]:
        before, after = (self.rank - 1) % 4, (self.rank + 1) % 4
        suffix = "/GDRDMA" if gdr and self.network == "IB" else ""
        found = []
        for channel in (0, 1):
            if self.device == 0:
                found.append(self.way(channel, before, self.rank, f"[receive] via NET/{self.network}/0{suffix}"))
                found.append(self.way(channel, self.rank, after, "via P2P/IPC"))
            else:
                found.append(self.way(channel, self.rank, after, f"[send] via NET/{self.network}/1{suffix}"))
        if self.network == "IB" and self.device == 0:
            found.append(f"{self.prefix}NET/IB: Dev 0 Port 1 qpn 290 mtu 5 GID 3 (0/{self.rank:X}0A)")
        return found


def lines_of(
    version: str, rank: int, network: str = "IB", gdr: bool = True, world: int = 4, host: str | None = None
) -> list[str]:
    """Return what one rank prints."""
    one = Rank(version, rank, network, host)
    found = [*one.networks(), *one.told_version(), *one.start(world)]
    if network == "IB" and one.at >= (2, 13):
        able = "Enabled" if gdr else "Disabled"
        found.append(f"{one.prefix}NET/IB : GPU Direct RDMA {able} for HCA 0 'mlx5_0'")
    found += one.rings(gdr) if world > 1 else []
    if one.at >= (2, 9):
        found.append(f"{one.prefix}Connected all rings{', use ring PXN 0 GDR 1' if one.at >= (2, 28) else ''}")
    return [*found, f"{one.prefix}{one.member(world)} - Init COMPLETE"]


def log_of(version: str, network: str = "IB", gdr: bool = True) -> str:
    return "".join(f"{line}\n" for rank in range(4) for line in lines_of(version, rank, network, gdr))


def plan(transport: PlannedTransport = PlannedTransport.IB, gdr: bool | None = True) -> RunPlan:
    hosts = tuple(
        PlannedHost(name, (2 * index, 2 * index + 1), hcas=("mlx5_0", "mlx5_1"), gid_index=3, interface="eth0")
        for index, name in enumerate(HOSTS)
    )
    env = (("NCCL_IB_GID_INDEX", "3"),)
    return RunPlan(hosts, NcclPlan(transport, gdr, one_world=True), env)


def seen(log: str, end: str = "\n") -> SeenRun:
    libraries = (("libmpi", "40.30.4"), ("libnccl", "2.21.5"))
    ranks = tuple(
        SeenRank(rank, HOSTS[rank // 2], 4, "OMPI_COMM_WORLD_SIZE", (("NCCL_IB_GID_INDEX", "3"),), libraries=libraries)
        for rank in range(4)
    )
    return SeenRun(ranks, parse(log + end))
