"""The knobs of NCCL that say which network it takes and how, and what it logs."""

from taco_launch.core.launch.knobs.knob import Knob

_ENV = "NCCL 2.32, env.rst"
_INSPECTOR = "NCCL, its inspector's README.md"
_INSPECTED = "with NCCL_PROFILER_PLUGIN naming the inspector's library"
_BOTH = "NCCL 2.32, env.rst; default in the source of 2.30"
_DEBUG = "NCCL 2.32, env.rst; src/debug.cc"
_LEVEL = "NCCL 2.32, env.rst; src/graph/paths.cc"
_LEVELS = ("LOC", "PIX", "PXB", "PHB", "SYS")
_IB = "where NCCL uses IB verbs (InfiniBand or RoCE)"
_ROCE = "on RoCE; ignored where the link layer is InfiniBand"
_AUTO_GID = "on RoCE, where NCCL_IB_GID_INDEX is not set"
_SOCKET = "where NCCL uses TCP sockets"
_INFO = "where NCCL_DEBUG is INFO or TRACE"

# fmt: off
_SUBSYSTEMS = ("INIT", "COLL", "P2P", "SHM", "NET", "GRAPH", "TUNING", "ENV", "ALLOC", "ALLOC_HOST", "CALL", "PROXY",
               "NVLS", "BOOTSTRAP", "REG", "PROFILE", "RAS", "DESTROY", "ALL")

# a row is one knob
NETWORK = (
    Knob("NCCL_NET", "text", "", "Forces a network by name, and fails where it is not available instead of falling"
         " back to sockets without a message.", _ENV, since="2.10", choices=("IB", "Socket"),
         values="IB, Socket or the name of a plugin, in upper or lower case"),
    Knob("NCCL_NET_PLUGIN", "text", "", "Which network plugin is loaded: its library, or its suffix.", _ENV,
         since="2.11", values="a library, a suffix, or none"),
    Knob("NCCL_SOCKET_IFNAME", "interfaces", "", "The interfaces for the bootstrap, even where the data uses IB,"
         " and for TCP. Each name is a prefix unless the list starts with =: eth1 includes eth10. It must exist on"
         " every host.", _ENV, history="without it ib* is preferred, lo and docker* come last",
         values="prefixes separated by commas; = first for exact names, ^ first to exclude"),
    Knob("NCCL_SOCKET_FAMILY", "word", "", "Restricts NCCL to IPv4 or to IPv6.", "NCCL 2.32, env.rst; src/misc/socket.cc",
         choices=("AF_INET", "AF_INET6"), exact=True),
    Knob("NCCL_SOCKET_NTHREADS", "integer", "1", "Helper threads per TCP connection. Their number times NCCL_NSOCKS_PERTHREAD is at"
         " most 64.", _ENV, low=1, high=16, since="2.4.8", history="2 on AWS, 4 on Google's gVNIC", applies=_SOCKET),
    Knob("NCCL_NSOCKS_PERTHREAD", "integer", "1", "Sockets per helper thread.", _ENV, low=1, high=64, since="2.4.8",
         history="8 on AWS", applies=_SOCKET),
    Knob("NCCL_SOCKET_RETRY_CNT", "integer", "34", "How often a refused connection is tried again; with the default"
         " pause that is a minute.", _ENV, low=1, since="2.24"),
    Knob("NCCL_SOCKET_RETRY_SLEEP_MSEC", "integer", "100", "The pause before the first retry; it grows with each retry.",
         _ENV, unit="ms", low=1, since="2.24"),
    Knob("NCCL_SOCKET_POLL_TIMEOUT_MSEC", "integer", "0", "How long NCCL waits between polls during the bootstrap.",
         _ENV, unit="ms", low=0, since="2.28"),
    Knob("NCCL_SOCKET_MAGIC", "text", "", "A number that keeps jobs on the same hosts and ports apart. It must be the same in"
         " every process of a job.", _ENV, values="a whole number, decimal or 0x...",
         form=r"[0-9]{1,20}|0[xX][0-9A-Fa-f]{1,16}"),
    Knob("NCCL_PSK", "key", "", "A key that all ranks share; with it, TCP traffic between hosts is encrypted.", _ENV,
         values="32 characters or more", applies="in builds with OpenSSL 3", secret=True),
    Knob("NCCL_COMM_ID", "endpoint", "", "Where rank 0 listens, for programs whose ranks have no other way to find each"
         " other.", "NCCL 2.29.7, its library", values="HOST:PORT or [IPV6]:PORT"),
    Knob("NCCL_CROSS_NIC", "integer", "2", "Whether a ring may use different NICs on different hosts: 0 never (for"
         " fabrics built in rails), 1 freely, 2 where it is faster.", _ENV, low=0, high=2,
         applies="on hosts with more than one NIC"),
    Knob("NCCL_IB_DISABLE", "switch", "0", "1 keeps NCCL off InfiniBand and RoCE. 0 is the default and forces"
         " nothing: NCCL_NET=IB does.", _ENV),
    Knob("NCCL_IB_HCA", "hca", "", "Which HCAs are used. Each name is a prefix unless the list starts with =: mlx5_1"
         " includes mlx5_10 to mlx5_19. At most 32.", _ENV, applies=_IB, values="HCA[:PORT[:RAIL[:PLANE]]] separated by"
         " commas; = first for exact names, ^ first to exclude",
         history="all ports that are ACTIVE; rail and plane since 2.30"),
    Knob("NCCL_IB_GID_INDEX", "integer", "-1", "Which GID of a RoCE port is used, one number for every HCA and host. A"
         " wrong one ends in 'ibv_modify_qp failed'. From 2.21 on, do not set it: NCCL finds it.", _BOTH, low=-1,
         high=255, since="2.1.4", history="-1 (NCCL chooses) since 2.21; 0 before, which is RoCE v1 and does not cross"
         " routers", applies=_ROCE),
    Knob("NCCL_IB_ROCE_VERSION_NUM", "integer", "2", "The RoCE version of the GID that NCCL chooses.", _ENV, low=1,
         high=2, since="2.21", applies=_AUTO_GID),
    Knob("NCCL_IB_ADDR_FAMILY", "word", "AF_INET", "The address family of the GID that NCCL chooses.", _ENV,
         choices=("AF_INET", "AF_INET6"), exact=True, since="2.21", applies=_AUTO_GID),
    Knob("NCCL_IB_ADDR_RANGE", "cidr", "", "The network that the GID has to be in. Use it where hosts differ in"
         " their GID index.", _ENV, values="a network such as 10.0.0.0/16", since="2.21", applies=_AUTO_GID),
    Knob("NCCL_IB_PKEY", "integer", "0", "Index of the partition key; the same key may have another index on another"
         " host.", _ENV, low=0, since="2.1.4", applies=_IB),
    Knob("NCCL_IB_PKEY_VALUE", "integer", "-1", "The partition key itself, such as 0x8111.", _ENV, low=-1, since="2.31",
         applies=_IB),
    Knob("NCCL_IB_SL", "integer", "0", "InfiniBand's service level.", _ENV, low=0, high=15, since="2.1.4", applies=_IB),
    Knob("NCCL_IB_TC", "integer", "0", "Traffic class; on RoCE the DSCP times 4. It must select the fabric's lossless"
         " queue: a wrong value ends in error 12 under load.", _ENV, low=0, high=255, since="2.1.15", applies=_IB),
    Knob("NCCL_IB_FIFO_TC", "integer", "", "Traffic class of the small control messages.", _ENV, low=0, high=255,
         since="2.22.3", history="same as NCCL_IB_TC", applies=_IB),
    Knob("NCCL_IB_TIMEOUT", "integer", "20", "How long an answer may take: 4.096 us * 2^n, times NCCL_IB_RETRY_CNT. 22"
         " is common in clouds. A higher value helps where errors come late, not where they come at once.", _ENV, low=0,
         values="0 to 31; 0, or 32 and more, waits forever", history="20 since 2.23; 18 since 2.14; 14 before",
         applies=_IB),
    Knob("NCCL_IB_RETRY_CNT", "integer", "7", "How often a message is sent again. The value has three bits: 13, which is seen"
         " in some documents, does not fit.", _ENV, low=0, high=7, values="0 to 7: the value has three bits", since="2.1.15",
         applies=_IB),
    Knob("NCCL_IB_QPS_PER_CONNECTION", "integer", "1", "Queue pairs per connection: more spread it over the links of a"
         " bond or the paths of a fabric.", _ENV, low=1, high=128, since="2.10", applies=_IB),
    Knob("NCCL_IB_SPLIT_DATA_ON_QPS", "switch", "0", "Whether each message is split over all queue pairs (1), or queue pairs take"
         " turns (0).", _ENV, since="2.18", history="0 since 2.20; 1 before",
         applies="where NCCL_IB_QPS_PER_CONNECTION is above 1"),
    Knob("NCCL_IB_PCI_RELAXED_ORDERING", "integer", "2", "Relaxed ordering on PCIe, which virtual machines need for"
         " speed: 0 is off, 1 requires it, 2 uses it where it is available.", _ENV, low=0, high=2, since="2.12", applies=_IB),
    Knob("NCCL_IB_ADAPTIVE_ROUTING", "switch", "", "Lets the fabric choose the path of each message; it needs a"
         " service level that is set up for it (NCCL_IB_SL).", _ENV, since="2.16", history="1 on InfiniBand, 0 on RoCE",
         applies=_IB),
    Knob("NCCL_IB_AR_THRESHOLD", "integer", "8192", "Messages of this size or larger may take any path.", _ENV,
         unit="bytes", low=0, since="2.6", applies="with adaptive routing"),
    Knob("NCCL_IB_ECE_ENABLE", "switch", "1", "Enhanced connection establishment, by which HCAs agree on what they can"
         " do.", _ENV, since="2.23", applies=_IB),
    Knob("NCCL_IB_OOO_RQ", "switch", "0", "Lets receive requests be used out of order.", _ENV, since="2.30",
         applies=_IB),
    Knob("NCCL_IB_MERGE_NICS", "switch", "1", "Treats the ports of a NIC as one device. Set 0 where a physical and a virtual"
         " function are both visible: NCCL merges them wrongly.", _ENV, since="2.20", applies=_IB),
    Knob("NCCL_IB_RAIL_POLICY", "text", "CX9", "How rails and planes are found.", _ENV, since="2.30.5",
         choices=("NONE", "CX9", "CX9:FLIP", "CX9:ALT", "CX9:BLOCK"),
         values="NONE, CX9, CX9:FLIP, CX9:ALT or CX9:BLOCK", applies=_IB),
    Knob("NCCL_IB_RETURN_ASYNC_EVENTS", "switch", "1", "Reports HCA events, and stops at fatal ones.", _ENV,
         since="2.23", applies=_IB),
    Knob("NCCL_IB_EVENT_BASED_LB", "switch", "0", "Divides messages according to the current speed of each merged device.",
         _ENV, since="2.31", applies=_IB),
    Knob("NCCL_IB_CUDA_SUPPORT", "switch", "", "GPUDirect RDMA, before 2.4.", _ENV, until="2.4",
         instead="NCCL_NET_GDR_LEVEL"),
    Knob("NCCL_IB_GDR_LEVEL", "level", "", "GPUDirect RDMA, before 2.4.", _ENV, choices=_LEVELS, since="2.3.4",
         until="2.4", instead="NCCL_NET_GDR_LEVEL"),
    Knob("NCCL_NET_GDR_LEVEL", "level", "PXB", "How far apart GPU and NIC may be for the NIC to access GPU memory"
         " directly. It also needs nvidia_peermem, nv_peer_mem or DMA-BUF; the level alone turns nothing on. NODE is no"
         " valid level: use PHB.", _LEVEL, choices=(*_LEVELS, "P2C", "PXN"), since="2.4", exact=True, applies=_IB,
         values="LOC (never), PIX, PXB, PHB, SYS (always), newer versions also P2C and PXN; 0 to 4 for the first five, 5 and more for"
         " SYS",
         history="called NCCL_IB_GDR_LEVEL before 2.4; PXB, P2C since there are C2C links"),
    Knob("NCCL_NET_GDR_READ", "integer", "-2", "Whether data is also sent directly from GPU memory. When off, it looks as if"
         " GPUDirect were broken: [send] lines lack GDRDMA.", _BOTH, low=-2, high=1,
         values="0 or 1; -2 leaves it to NCCL", history="since 2.4.2: 1 with NVLink, also on A100 and newer; 0 before",
         applies=_IB),
    Knob("NCCL_NET_GDR_C2C", "switch", "1", "GPUDirect RDMA over a CPU that is linked to the GPU by C2C.", _ENV,
         since="2.26", history="1 since 2.27; 0 in 2.26", applies="on Grace"),
    Knob("NCCL_DMABUF_ENABLE", "switch", "1", "GPUDirect RDMA by the kernel's DMA-BUF, without a module of NVIDIA's.",
         _ENV, since="2.13", applies="with kernel 5.12, open GPU modules and CUDA 11.7 or newer"),
    Knob("NCCL_NET_MERGE_LEVEL", "level", "", "How far apart NICs may be to be merged into one device.",
         "NCCL 2.32, env.rst, under NCCL_NET_MERGE_POLICY", choices=(*_LEVELS, "PORT"), exact=True),
    Knob("NCCL_NET_MERGE_POLICY", "word", "ALL", "Whether NICs of different rails may be merged into one device.", _ENV,
         choices=("ALL", "RAIL"), since="2.30.5"),
    Knob("NCCL_NETDEVS_POLICY", "text", "", "How many NICs a GPU uses.", _ENV, values="MAX:N or ALL", form=r"MAX:[1-9][0-9]{0,3}|ALL",
         since="2.28"),
    Knob("NCCL_NET_SHARED_BUFFERS", "switch", "1", "One pool of buffers for all peers of send and receive.", _ENV,
         since="2.8"),
    Knob("NCCL_NET_SHARED_COMMS", "switch", "1", "Shares connections among the GPUs of a host (PXN).", _ENV,
         since="2.12"),
    Knob("NCCL_IGNORE_NET_MISMATCH", "switch", "1", "0 fails at the start when a rank sees fewer NICs than others: the"
         " best check before a long run.", _ENV, since="2.30"),
    Knob("NCCL_IGNORE_COLLNET_MISMATCH", "switch", "0", "1 continues when a rank sees fewer CollNet devices.", _ENV,
         since="2.30"),
    Knob("NCCL_OOB_NET_ENABLE", "switch", "", "Runs the bootstrap over NCCL's network instead of TCP.", _ENV,
         since="2.23"),
    Knob("NCCL_OOB_NET_IFNAME", "text", "", "Which interfaces or HCAs the bootstrap over NCCL's network uses; written as in NCCL_IB_HCA.", _ENV, since="2.23",
         values="names separated by commas; = first for exact names, ^ first to exclude",
         applies="where NCCL_OOB_NET_ENABLE is 1"),
    Knob("NCCL_UID_STAGGER_THRESHOLD", "integer", "256", "With this many ranks or more, ranks connect to rank 0 one after"
         " another.", _ENV, low=1, since="2.23"),
    Knob("NCCL_UID_STAGGER_RATE", "integer", "7000", "How many ranks connect to rank 0 in a second.", _ENV, low=1, since="2.23"),
)

LOGGING = (
    Knob("NCCL_DEBUG", "word", "", "How much NCCL prints. WARN is for production. INFO messages of all ranks go"
         " through mpirun, so use INFO in a probe only. With an unknown word, NCCL prints nothing.", _DEBUG,
         choices=("INFO", "WARN", "VERSION", "TRACE", "ATTN", "ABORT"),
         values="VERSION, WARN, INFO or TRACE; ATTN since 2.32"),
    Knob("NCCL_DEBUG_SUBSYS", "words", "INIT,BOOTSTRAP,ENV", "Which subsystems INFO logs. A value replaces the default, so"
         " include INIT as well; NET logs the lines about GPUDirect RDMA.", _DEBUG, choices=_SUBSYSTEMS, since="2.3.4",
         applies=_INFO, history="INIT,BOOTSTRAP,ENV since 2.23; INIT,ENV from 2.18 on; INIT before"),
    Knob("NCCL_DEBUG_FILE", "path", "", "Where each process writes its messages; %h is the host, %p the process."
         " Without %p, processes overwrite each other's file.", _DEBUG, since="2.2.12",
         values="a path without ~, such as /tmp/nccl.%h.%p", history="standard output"),
    Knob("NCCL_DEBUG_LEVELS", "words", "", "Single log levels in addition to NCCL_DEBUG.", _ENV, since="2.32",
         choices=("VERSION", "WARN", "ATTN", "INFO", "ABORT", "TRACE", "ALL")),
    Knob("NCCL_DEBUG_TIMESTAMP_FORMAT", "text", "[%F %T] ", "The format of the time before a message, as in strftime; _ is a"
         " space.", _ENV, values="a strftime format, with %3f for milliseconds, or empty for no time", since="2.26"),
    Knob("NCCL_DEBUG_TIMESTAMP_LEVELS", "words", "WARN,ATTN", "Which log levels get a timestamp.", _ENV, since="2.26",
         choices=("VERSION", "WARN", "ATTN", "INFO", "ABORT", "TRACE", "ALL")),
    Knob("NCCL_WARN_ENABLE_DEBUG_INFO", "switch", "0", "Switches to INFO after the first warning.",
         "NCCL 2.30, src/debug.cc"),
    Knob("NCCL_CONF_FILE", "path", "", "A file with more variables, read instead of ~/.nccl.conf. The environment overrides"
         " it. /etc/nccl.conf is read last: an old copy in an image takes effect unnoticed.",
         "NCCL 2.32, env.rst; src/misc/param.cc", values="a path without ~", since="2.23"),
    Knob("NCCL_RUN_DIAGNOSTICS", "switch", "0", "Tests the paths between GPUs at each start of NCCL; the lines of the test on stdout"
         " start with NCCL DIAG.", "NCCL 2.31, troubleshooting/diagnostics.rst", since="2.31"),
    Knob("NCCL_RUN_RAS_DIAGNOSTICS", "switch", "0", "Compares GPUs, drivers, ECC errors and NCCL_ variables of all ranks at"
         " each start of NCCL.", "NCCL 2.31, troubleshooting/ras.rst", since="2.31", applies="where NCCL_RAS_ENABLE is 1"),
    Knob("NCCL_DIAGNOSTICS_ECC_THRESHOLD", "integer", "", "How many corrected memory errors make NCCL's diagnostics name a GPU.",
         "NCCL 2.31, troubleshooting/ras.rst", low=0, since="2.31"),
    Knob("NCCL_INSPECTOR_ENABLE", "switch", "0", "Turns on the inspector, which writes the time of each collective.",
         _INSPECTOR, applies=_INSPECTED),
    Knob("NCCL_INSPECTOR_ENABLE_P2P", "switch", "0", "The inspector also writes the time of send and receive.", _INSPECTOR,
         applies=_INSPECTED),
    Knob("NCCL_INSPECTOR_DUMP_THREAD_ENABLE", "switch", "1", "The inspector writes in a thread of its own.", _INSPECTOR,
         applies=_INSPECTED),
    Knob("NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS", "integer", "", "How often the inspector writes.", _INSPECTOR, low=0,
         values="a whole number of microseconds", applies=_INSPECTED),
    Knob("NCCL_INSPECTOR_DUMP_DIR", "path", "", "The folder that the inspector writes into.", _INSPECTOR, applies=_INSPECTED),
    Knob("NCCL_INSPECTOR_DUMP_VERBOSE", "switch", "0", "The inspector also writes each event.", _INSPECTOR, applies=_INSPECTED),
    Knob("NCCL_INSPECTOR_PROM_DUMP", "switch", "0", "The inspector writes Prometheus' format instead of JSON.", _INSPECTOR,
         applies=_INSPECTED),
    Knob("NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES", "integer", "", "The inspector leaves out messages smaller than this.", _INSPECTOR, unit="bytes",
         low=0, applies=_INSPECTED),
    Knob("NCCL_INSPECTOR_REQUIRE_KERNEL_TIMING", "switch", "", "The inspector leaves out operations that the GPU did not time.", _INSPECTOR,
         applies=_INSPECTED),
    Knob("NCCL_RAS_ENABLE", "switch", "1", "Runs a service in each process; `ncclras` asks it which ranks are stuck.",
         _ENV, since="2.24"),
    Knob("NCCL_RAS_ADDR", "endpoint", "localhost:28028", "Where the RAS service listens; two jobs on one host need two"
         " ports.", _ENV, values="HOST:PORT or [IPV6]:PORT", since="2.24", applies="where NCCL_RAS_ENABLE is 1"),
    Knob("NCCL_RAS_TIMEOUT_FACTOR", "number", "1", "Multiplies the timeouts of the RAS service.", _ENV,
         values="a number above 0", low=0, positive=True, since="2.24", applies="where NCCL_RAS_ENABLE is 1"),
    Knob("NCCL_SET_THREAD_NAME", "switch", "0", "Gives NCCL's threads names that top shows.", _ENV, since="2.12"),
    Knob("NCCL_TOPO_FILE", "path", "/var/run/nvidia-topologyd/virtualTopology.xml",
         "A file that describes the host's topology to NCCL; the path must exist inside the container.", _ENV,
         since="2.6"),
    Knob("NCCL_TOPO_DUMP_FILE", "path", "", "Where NCCL writes the topology that it found.", _ENV, since="2.6"),
)
# fmt: on
