"""The knobs of Open MPI: MCA parameters of 4.1 and 5.0, environment variables, and UCX beneath it."""

from taco_launch.core.launch.knobs.knob import Knob

_BOTH = "ompi_info of Open MPI 4.1.4 and 5.0.11"
_FOUR = "ompi_info of Open MPI 4.1.4"
_PAIR = "ompi_info of Open MPI 4.1.4; prte_info of 5.0.11"
_UCX = "ucx_info -c of UCX 1.13.1"
_HCOLL = "Open MPI 4.1, component hcoll"
_SSH = "for ssh to other hosts"
_ONE_HOST = "to ranks of one host"
_VERBOSITY = ("none", "error", "component", "warn", "info", "trace", "debug", "max")
_EXPORTED = "exported in the shell that starts taco-launch"

# fmt: off
# a row is one knob
OPENMPI = (
    Knob("pml", "components", "", "The component that carries MPI's messages. ob1 over tcp is enough where NCCL moves the data; UCX,"
         " which has priority where it is built in, may pick the wrong NIC.", _BOTH, choices=("ob1", "ucx", "cm", "v", "monitoring", "yalla"),
         values="components separated by commas, such as ob1; ^ucx excludes ucx"),
    Knob("btl", "components", "", "The components that carry ob1's messages. A list must name self and something that reaches"
         " other hosts; ^openib excludes only openib.", _BOTH, applies="where pml is ob1",
         choices=("self", "tcp", "vader", "sm", "openib", "ofi", "smcuda", "uct", "ugni", "usnic", "portals4"), values="components separated by commas, such as"
         " self,vader,tcp; ^openib excludes openib", history="5.0 no longer has openib, and vader is called sm"),
    Knob("mtl", "components", "", "The components that carry the messages of pml cm.", _BOTH, applies="where pml is cm",
         choices=("ofi", "psm", "psm2", "portals4", "mxm"), values="components separated by commas"),
    Knob("coll", "components", "", "The components that run MPI's collective operations.", _BOTH, values="components separated by commas",
         choices=("basic", "libnbc", "tuned", "self", "sync", "inter", "sm", "han", "adapt", "hcoll", "ucc", "cuda",
                  "monitoring", "ftagree", "xhc", "fca", "portals4", "accelerator")),
    Knob("plm", "components", "", "How daemons are started on other hosts: rsh (5.0: ssh) or a batch system.", _PAIR,
         choices=("rsh", "ssh", "slurm", "tm", "lsf", "alps", "pals", "isolated"), values="components separated by commas"),
    Knob("btl_tcp_if_include", "networks", "", "The interfaces or networks for MPI's messages. Without it, MPI may try docker0,"
         " which is the same on every host, and the job hangs.", _BOTH, applies="where btl has tcp",
         values="interfaces or networks separated by commas, such as eth0 or 10.0.0.0/16; not together with btl_tcp_if_exclude"),
    Knob("btl_tcp_if_exclude", "networks", "127.0.0.1/8,sppp", "The interfaces or networks that MPI's messages avoid."
         " A value replaces the default, so name lo as well. Better use btl_tcp_if_include.", _BOTH,
         applies="where btl has tcp", values="interfaces or networks separated by commas; not together with btl_tcp_if_include"),
    Knob("btl_tcp_port_min_v4", "integer", "1024", "The first port that MPI's messages may use, for a firewall.", _BOTH,
         low=1, high=65535, applies="where btl has tcp"),
    Knob("btl_tcp_port_range_v4", "integer", "64511", "How many ports from btl_tcp_port_min_v4 on; a count, not the"
         " last port.", _BOTH, low=1, high=65535, applies="where btl has tcp"),
    Knob("btl_tcp_port_min_v6", "integer", "1024", "As btl_tcp_port_min_v4, for IPv6.", _BOTH, low=1, high=65535),
    Knob("btl_tcp_port_range_v6", "integer", "64511", "As btl_tcp_port_range_v4, for IPv6.", _BOTH, low=1, high=65535),
    Knob("btl_tcp_links", "integer", "1", "How many TCP connections per pair of ranks and interface.", _BOTH, low=1,
         applies="where btl has tcp"),
    Knob("btl_tcp_sndbuf", "integer", "0", "Send buffer of MPI's sockets; 0 leaves it to the kernel.", _BOTH,
         unit="bytes", low=0),
    Knob("btl_tcp_rcvbuf", "integer", "0", "Receive buffer of MPI's sockets; 0 leaves it to the kernel.", _BOTH,
         unit="bytes", low=0),
    Knob("btl_base_verbose", "verbosity", "error", "How much btl components log about what they select.", _BOTH, low=-1,
         high=100, choices=_VERBOSITY),
    Knob("btl_base_warn_component_unused", "integer", "1", "Warns of network hardware that no btl uses; 0 does not.",
         _BOTH, low=0, history="0 in Debian's 4.1"),
    Knob("btl_vader_single_copy_mechanism", "word", "cma", "How one rank reads another's memory on the same host. cma needs"
         " the right to trace (ptrace): without it, a container prints many 'Read -1, expected N, errno = 1' lines.", _FOUR,
         choices=("cma", "xpmem", "knem", "emulated", "none", "0", "1", "2", "3", "4"), exact=True, until="5.0",
         values="cma, xpmem, knem, emulated or none, depending on the build", applies=_ONE_HOST,
         history="5.0: smsc, a list of components: --mca smsc ^cma"),
    Knob("btl_vader_backing_directory", "path", "/dev/shm",  # noqa: S108 - it is Open MPI that writes there
         "Where shared memory is created; too small a /dev/shm in a container ends in a bus error.", _BOTH, applies=_ONE_HOST,
         aliases=("btl_sm_backing_directory",)),
    Knob("btl_vader_segment_size", "integer", "4194304", "The size of the shared memory that each rank creates.", _BOTH, unit="bytes",
         low=0, applies=_ONE_HOST, history="16777216 in 5.0", aliases=("btl_sm_segment_size",)),
    Knob("smsc", "components", "", "How one rank reads another's memory on the same host: cma, xpmem, knem. ^cma is for"
         " containers without the right to trace (ptrace).", "ompi_info of Open MPI 5.0.11", since="5.0", applies=_ONE_HOST,
         choices=("cma", "xpmem", "knem", "accelerator"), values="components separated by commas; ^cma excludes cma"),
    Knob("btl_openib_allow_ib", "switch", "0", "Lets openib use InfiniBand although UCX is the better way.", _FOUR,
         until="5.0", applies="where btl has openib"),
    Knob("btl_openib_warn_no_device_params_found", "switch", "1", "Shows openib's warning that it does not know a new NIC.",
         _FOUR, until="5.0", applies="where btl has openib"),
    Knob("btl_openib_if_include", "text", "", "The HCAs of openib.", _FOUR, until="5.0",
         values="HCAs separated by commas, such as mlx5_0:1", applies="where btl has openib"),
    Knob("btl_openib_gid_index", "integer", "0", "The GID index of openib on RoCE.", _FOUR, low=0, until="5.0",
         applies="where btl has openib"),
    Knob("pml_ucx_tls", "text", "rc_verbs,ud_verbs,rc_mlx5,dc_mlx5,ud_mlx5,cuda_ipc,rocm_ipc",
         "Open MPI uses pml ucx only if UCX has one of these transports; UCX_TLS chooses among them.", _BOTH,
         values="UCX transports separated by commas, or any; ^ first to exclude", aliases=("opal_common_ucx_tls",)),
    Knob("pml_ucx_devices", "text", "mlx*", "Open MPI uses pml ucx only if UCX has one of these devices;"
         " UCX_NET_DEVICES chooses among them.", _BOTH, values="patterns separated by commas, or any; ^ first to exclude",
         aliases=("opal_common_ucx_devices",)),
    Knob("coll_hcoll_enable", "switch", "1", "NVIDIA's collectives; 0 keeps them from opening an HCA of their own"
         " choice.", _HCOLL, applies="in builds with hcoll, such as HPC-X"),
    Knob("coll_tuned_use_dynamic_rules", "switch", "0", "Makes the coll_tuned_*_algorithm parameters take effect.", _BOTH),
    Knob("coll_tuned_allreduce_algorithm", "text", "ignore", "Forces MPI's all-reduce algorithm by name or number. MPI"
         " moves gradients only where Horovod runs without NCCL.", _BOTH, values="a name or number that ompi_info lists",
         applies="where coll_tuned_use_dynamic_rules is 1"),
    Knob("mpi_yield_when_idle", "switch", "0", "Ranks that wait give up their core to other processes.", _BOTH),
    Knob("mpi_warn_on_fork", "switch", "1", "Warns about fork() in a rank, which data loaders trigger.", _BOTH),
    Knob("mpi_abort_print_stack", "switch", "0", "Prints a stack at MPI_Abort.", _BOTH),
    Knob("opal_cuda_support", "switch", "0", "Lets MPI accept pointers to GPU memory.", _BOTH,
         aliases=("mpi_cuda_support",), applies="in builds with CUDA"),
    Knob("mca_base_env_list", "text", "", "Variables for the ranks, like -x; mpirun accepts only one of the two, and"
         " taco-launch uses -x.", _BOTH, values="NAME or NAME=VALUE separated by semicolons", given="-x NAME=VALUE instead"),
    Knob("oob_tcp_if_include", "networks", "", "The interfaces or networks through which mpirun and its daemons find each"
         " other. Without it, they also advertise docker0, which is the same on every host, and the start hangs.", _PAIR,
         values="interfaces or networks separated by commas, such as eth0 or 10.0.0.0/16; not together with oob_tcp_if_exclude",
         aliases=("prte_if_include", "oob_tcp_include"), history="5.0: prte_if_include; the old name is deprecated"),
    Knob("oob_tcp_if_exclude", "networks", "", "The interfaces or networks that mpirun and its daemons avoid. Better use"
         " oob_tcp_if_include.", _PAIR, values="interfaces or networks separated by commas; not together with oob_tcp_if_include",
         aliases=("prte_if_exclude", "oob_tcp_exclude"), history="5.0: prte_if_exclude; the old name is deprecated"),
    Knob("oob_tcp_dynamic_ipv4_ports", "ports", "", "The ports of mpirun and its daemons, for a firewall.", _PAIR,
         values="ports and ranges separated by commas, such as 40000-40999"),
    Knob("oob_tcp_dynamic_ipv6_ports", "ports", "", "As oob_tcp_dynamic_ipv4_ports, for IPv6.", _PAIR, values="ports and ranges separated by commas"),
    Knob("oob_tcp_static_ipv4_ports", "ports", "", "Fixed ports of mpirun and its daemons.", _PAIR,
         values="ports with commas and ranges"),
    Knob("oob_tcp_static_ipv6_ports", "ports", "", "As oob_tcp_static_ipv4_ports, for IPv6.", _PAIR, values="ports and ranges separated by commas"),
    Knob("oob_tcp_keepalive_time", "integer", "300", "After how long without a message a daemon's connection is probed. A"
         " dead network is not noticed earlier. 0 or less turns probing off.", _PAIR, unit="s"),
    Knob("oob_tcp_keepalive_intvl", "integer", "20", "The time between two probes without an answer.", _PAIR,
         unit="s", applies="where oob_tcp_keepalive_time is above 0"),
    Knob("oob_tcp_keepalive_probes", "integer", "9", "How many probes may be lost.", _PAIR, low=0,
         applies="where oob_tcp_keepalive_time is above 0"),
    Knob("oob_base_verbose", "verbosity", "error", "How much is logged about the connections between mpirun and its daemons.", _PAIR,
         low=-1, high=100, choices=_VERBOSITY),
    Knob("plm_base_verbose", "verbosity", "error", "How much is logged about the start of daemons, with the ssh line of"
         " each host.", _PAIR, low=-1, high=100, choices=_VERBOSITY),
    Knob("plm_rsh_agent", "text", "ssh : rsh", "The program that reaches other hosts.", _PAIR, applies=_SSH,
         values="a program with its options; alternatives separated by ' : '", aliases=("plm_ssh_agent", "orte_rsh_agent")),
    Knob("plm_rsh_args", "options", "", "More options for ssh. They are split at spaces, and quotes do not help: no path"
         " may contain a space.", _PAIR, applies=_SSH, values="options such as -p 12222", aliases=("plm_ssh_args",)),
    Knob("plm_rsh_no_tree_spawn", "switch", "0", "mpirun logs in to every host itself. Otherwise, hosts log in to each other,"
         " and each needs ssh access to the others.", _PAIR, applies=_SSH, aliases=("plm_ssh_no_tree_spawn",)),
    Knob("plm_rsh_num_concurrent", "integer", "128", "How many ssh processes run at once.", _PAIR, low=1, applies=_SSH,
         aliases=("plm_ssh_num_concurrent",)),
    Knob("plm_rsh_pass_libpath", "text", "", "Folders to put before LD_LIBRARY_PATH of the daemons on other hosts.", _PAIR,
         applies=_SSH, aliases=("plm_ssh_pass_libpath",), values="folders separated by colons"),
    Knob("plm_rsh_assume_same_shell", "switch", "1", "Assumes that other hosts have the same shell as this one.", _PAIR,
         applies=_SSH, aliases=("plm_ssh_assume_same_shell", "orte_assume_same_shell", "prte_assume_same_shell")),
    Knob("routed_radix", "integer", "64", "How many daemons each daemon has below it in the tree.", _PAIR, low=1,
         aliases=("rml_base_radix",)),
    Knob("orte_keep_fqdn_hostnames", "switch", "0", "Keeps host names whole. 4.1 cuts them at the first dot: node1.lab"
         " is reached as node1.", _PAIR, until="5.0", aliases=("prte_keep_fqdn_hostnames",)),
    Knob("orte_abort_on_non_zero_status", "switch", "1", "Ends the job when a rank ends with anything but 0.", _PAIR,
         until="5.0", aliases=("state_base_error_non_zero_exit",)),
    Knob("orte_launch_agent", "text", "orted", "The daemon's program on other hosts, or a wrapper around it.", _PAIR,
         until="5.0", values="a program", aliases=("prte_launch_agent",)),
    Knob("orte_default_hostfile", "path", "/etc/openmpi/openmpi-default-hostfile", "The hostfile to use when the command line names no hosts.",
         _FOUR, until="5.0", history="the path is that of Debian's build", aliases=("prte_default_hostfile",)),
    Knob("orte_tmpdir_base", "path", "", "Where session folders are made.", _PAIR, until="5.0",
         aliases=("prte_tmpdir_base",)),
    Knob("orte_tag_output", "switch", "0", "Puts [job,rank] before each line of output.", _FOUR, until="5.0",
         history="5.0: --output tag"),
    Knob("orte_timestamp_output", "switch", "0", "Puts the time before each line of output.", _FOUR, until="5.0",
         history="5.0: --output timestamp"),
    Knob("orte_startup_timeout", "integer", "0", "After how many seconds mpirun gives up a start that does not finish; 0 is"
         " never.", _FOUR, unit="s", low=0, until="5.0"),
    Knob("orte_base_help_aggregate", "switch", "1", "Prints an error that many ranks have in common only once.", _FOUR,
         until="5.0"),
    Knob("hwloc_base_binding_policy", "text", "", "What ranks are bound to; as --bind-to.", _FOUR, until="5.0",
         values="none, core, socket, numa, ...", history="5.0: --bind-to"),
    Knob("rmaps_base_mapping_policy", "text", "", "How ranks are distributed over hosts; as --map-by.", _PAIR,
         values="slot, node, ppr:N:node, ...", aliases=("rmaps_default_mapping_policy", "mapby", "map_by")),
    Knob("rmaps_base_oversubscribe", "switch", "0", "Allows more ranks than slots, also those that a program starts"
         " (MPI_Comm_spawn).", _FOUR,
         until="5.0", history="5.0: --mca rmaps_default_mapping_policy :oversubscribe"),
    Knob("OMPI_ALLOW_RUN_AS_ROOT", "word", "", "Lets root run mpirun, as --allow-run-as-root does, but only with"
         " OMPI_ALLOW_RUN_AS_ROOT_CONFIRM beside it.", "Open MPI 4.1, orte/tools/orterun", choices=("1",),
         applies="in mpirun's own environment; -x gives it to the ranks, which do not read it", given=_EXPORTED),
    Knob("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "word", "", "The second half of OMPI_ALLOW_RUN_AS_ROOT.",
         "Open MPI 4.1, orte/tools/orterun", choices=("1",), applies="in mpirun's own environment; -x gives it to the"
         " ranks, which do not read it", given=_EXPORTED),
)

UCX = (
    Knob("UCX_TLS", "text", "all", "The transports that UCX may use.", _UCX, values="transports separated by commas, such as"
         " rc,self,sm; a leading ^ excludes them", applies="where pml is ucx"),
    Knob("UCX_NET_DEVICES", "text", "all", "The NICs that UCX may use.", _UCX,
         values="devices separated by commas, such as mlx5_0:1,eth0", applies="where pml is ucx"),
    Knob("UCX_IB_GID_INDEX", "text", "auto", "The GID index of UCX on RoCE; UCX does not read NCCL_IB_GID_INDEX.", _UCX,
         values="a whole number, or auto", form="auto|[0-9]{1,3}", applies="where pml is ucx, on RoCE"),
    Knob("UCX_LOG_LEVEL", "text", "warn", "How much UCX prints.", _UCX,
         values="fatal, error, warn, diag, info, debug, trace, ...",
         choices=("fatal", "error", "warn", "diag", "info", "debug", "trace", "req", "data", "async", "func", "poll")),
    Knob("UCX_RNDV_THRESH", "text", "auto", "Messages of this size or larger are announced before they are sent.", _UCX,
         values="a size such as 8kb, inf or auto"),
    Knob("UCX_MAX_RNDV_RAILS", "integer", "2", "How many NICs share one large message.", _UCX, low=1),
    Knob("UCX_MEMTYPE_CACHE", "text", "try", "Remembers which memory is a GPU's.", _UCX, values="yes, no or try",
         form="(?i:yes|y|no|n|try|on|off|1|0)"),
    Knob("UCX_WARN_UNUSED_ENV_VARS", "text", "y", "Warns of UCX_ variables that UCX does not know.", _UCX,
         values="y or n", form="(?i:yes|y|no|n|on|off|1|0)"),
)
# fmt: on
