"""Why NCCL does not do what was planned, as far as its own log tells, and what to do about it."""

from typing import NamedTuple

from taco_launch.model.run.observed import NcclProcess
from taco_launch.model.run.planned import Transport


class Cause(NamedTuple):
    """A likely cause and the next step, a sentence each."""

    cause: str
    next_step: str


def of_transport(process: NcclProcess, planned: Transport, host: str) -> Cause:
    """Explain why another network than the planned one is used on a host."""
    env = dict(process.env)
    warnings = " ".join(process.warnings)
    if planned is Transport.SOCKET:
        return Cause(
            f"NCCL found a faster network on {host}.", "-x NCCL_NET=Socket keeps it on TCP; or use --transport rdma."
        )
    if env.get("NCCL_IB_DISABLE", "0") not in ("", "0"):
        return Cause(
            f"NCCL_IB_DISABLE={env['NCCL_IB_DISABLE']} reached the ranks on {host}.",
            "Remove it from -x, the job file, the image's environment and /etc/nccl.conf there.",
        )
    if env.get("NCCL_NET", "").lower() == "socket":
        return Cause(f"NCCL_NET=Socket reached the ranks on {host}.", "Remove it, or set -x NCCL_NET=IB.")
    if "libibverbs" in warnings:
        return Cause(
            f"The image on {host} has no libibverbs, which NCCL loads for RDMA.",
            "Install rdma-core (libibverbs1, ibverbs-providers) in the image.",
        )
    if planned is Transport.OFI:
        return Cause(
            f"NCCL's libfabric plugin was not loaded on {host}.",
            f"On {host}, run fi_info -p efa where the ranks run; LD_LIBRARY_PATH must contain the folder of libnccl-net.so.",
        )
    if "NCCL_IB_HCA" in env and process.no_ib:
        return Cause(
            f"No HCA of {host} matches NCCL_IB_HCA={env['NCCL_IB_HCA']}, or its port is not active.",
            f"taco-launch facts {host} --only rdma shows its HCAs and the state of their ports.",
        )
    if process.no_ib:
        return Cause(
            f"NCCL finds no RDMA device on {host}: none is visible in the container, or no port is active.",
            f"Run taco-launch facts {host} --only rdma, and ls /dev/infiniband and ibv_devinfo where the ranks run.",
        )
    return Cause(
        f"NCCL on {host} chose another network than planned.",
        f"Run taco-launch facts {host} --only rdma,network; with -x NCCL_NET=IB, NCCL fails instead of falling back.",
    )


def of_gdr(process: NcclProcess, host: str) -> Cause:
    """Explain why GPUDirect RDMA is not used on a host."""
    env = dict(process.env)
    if any(not enabled for _hca, enabled in process.gdr_of_hca):
        return Cause(
            f"No peer memory module is loaded on {host}, and DMA-BUF cannot be used there.",
            f"Run taco-launch setup -H {host} --only peermem, then lsmod | grep -E 'nvidia_peermem|nv_peer_mem' there.",
        )
    for name, off in (("NCCL_NET_GDR_LEVEL", ("LOC", "0")), ("NCCL_IB_CUDA_SUPPORT", ("0",))):
        if env.get(name) in off:
            return Cause(
                f"{name}={env[name]} turns GPUDirect RDMA off on {host}.",
                f"Remove {name} from -x, the job file, the image's environment and /etc/nccl.conf there.",
            )
    if process.gdr_of_hca or process.too_far:
        told = f" ({process.too_far})" if process.too_far else ""
        return Cause(
            f"The HCAs of {host} support GPUDirect RDMA, but are farther from the GPU than NCCL_NET_GDR_LEVEL allows{told}.",
            f"taco-launch facts {host} --only topology,rdma shows the distances; -x NCCL_NET_GDR_LEVEL=PHB or SYS allows more.",
        )
    return Cause(
        f"The peer memory module is not loaded on {host}, or the HCA is too far from the GPU.",
        f"Run taco-launch facts {host} --only rdma; with -x NCCL_DEBUG_SUBSYS=INIT,NET, NCCL logs which it is.",
    )
