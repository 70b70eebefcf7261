"""Messages of Slurm about jobs that it refuses, ends or sees fail: slurmstepd, srun and sbatch, and their plugins (SPANK; pyxis_slurmd.c)."""

from taco_launch.core.signatures.known import FailureText, Qualifier, Signature

SLURM = (
    Signature(
        "slurm-no-address",
        keys=("Can't find address for host",),
        cause="slurmd on {host} does not know the address of {node}: its slurm.conf differs, or the name does not resolve there.",
        next="Give all nodes the same slurm.conf (scontrol show config | grep HASH), check getent hosts {node} there, and restart slurmd.",
        pattern=r"(?:_pmix_p2p_send_core: (?P<host>[\w.-]+) \[\d+\][^\r\n]*)?Can't find address for host (?P<node>[\w.-]+)",
    ),
    Signature(
        "slurm-launch-late",
        keys=("timeout waiting for task launch",),
        cause="slurmd started {started} of {count} tasks in time, and srun gave up: a node is busy, or its prolog, its disk or its PMIx plugin hangs.",
        next="Look at the nodes: sinfo -R, and slurmd's log on the one that is late. If it is only slow, raise MessageTimeout in slurm.conf.",
        pattern=r"timeout waiting for task launch, started (?P<started>\d+) of (?P<count>\d+) tasks",
    ),
    Signature(
        "slurm-out-of-memory",
        keys=(
            "oom-kill event",
            "oom_kill event",
            "xceeded memory limit",
            "xceeded job memory limit",
            "xceeded step memory limit",
        ),
        cause="Slurm killed a process of this job[[host? on {host}]]: it used more memory than the job has.",
        next="Request more: sbatch --mem=0 (all of a node's memory) or --mem-per-cpu; or smaller batches, fewer data loader "
        "workers.",
        pattern=r"slurmstepd\S*: error: (?:[^\r\n]{0,80}oom.kill event|(?:(?:Job|Step) \S+ )?[Ee]xceeded (?:job |step )?memory limit)",
    ),
    Signature(
        "slurm-task-out-of-memory",
        keys=(": Out Of Memory",),
        cause="Slurm killed task {task} on {host}, because it used more memory than the job has.",
        next="Request more: sbatch --mem=0 (all of a node's memory) or --mem-per-cpu; or smaller batches, fewer data loader "
        "workers.",
        pattern=r"srun: error: (?P<host>[^\s:]+): tasks? (?P<task>[\d,-]+): Out Of Memory",
        unless=("slurm-out-of-memory",),
    ),
    Signature(
        "slurm-time-limit",
        keys=("DUE TO TIME LIMIT",),
        cause="Slurm ended {what} because its time was up.",
        next="Request more: sbatch --time=HH:MM:SS, up to what the partition allows (sinfo -o '%P %l'); and save checkpoints, "
        "so that the next job continues from there.",
        pattern=r"\*\*\* (?P<what>(?:JOB|STEP) \S+) ON [^\r\n]*CANCELLED AT \S+ DUE TO TIME LIMIT",
    ),
    Signature(
        "slurm-preempted",
        keys=("DUE TO PREEMPTION", "DUE TO JOB REQUEUE"),
        cause="Slurm ended {what} to make room for a job of higher priority[[requeue?, or since it was requeued by hand: it starts again by itself]].",
        next="Start it again (sbatch --requeue lets Slurm do that) and continue from a checkpoint; or use a partition or QOS that "
        "is not preempted.",
        pattern=r"\*\*\* (?P<what>(?:JOB|STEP) \S+) ON [^\r\n]*CANCELLED AT \S+ DUE TO (?:PREEMPTION|(?P<requeue>JOB REQUEUE))",
    ),
    Signature(
        "slurm-node-failure",
        keys=("DUE TO NODE FAILURE",),
        cause="Slurm ended {what} because a node of the job failed or no longer answered.",
        next="See which: sinfo -R names nodes that are down and why. Leave it out: sbatch --exclude=NODE.",
        pattern=r"\*\*\* (?P<what>(?:JOB|STEP) \S+) ON [^\r\n]*CANCELLED AT \S+ DUE TO NODE FAILURE",
        unless=("slurm-nodes-not-ready",),  # which names the node
    ),
    Signature(
        "slurm-cancelled",
        keys=(" CANCELLED AT ",),
        cause="{what} was cancelled[[why?, and Slurm gives the reason {why}||: by scancel, by Slurm, or because another step or task of the job had failed]].",
        next="[[task?Read the output of the task that failed (the lists of terminated tasks lack it), and see||See]] what Slurm noted: sacct -j JOBID -o JobID,State,ExitCode,Comment. If no user cancelled it, look for what "
        "failed before that line.",
        pattern=r"\*\*\* (?P<what>(?:JOB|STEP) \S+) ON [^\r\n]*CANCELLED AT (?!\S+ DUE TO (?:TIME|PREEM|NODE|JOB REQ))(?:\S+ DUE TO (?=(?P<task>TASK FAILURE)?)(?P<why>[A-Z][^\r\n*]{1,100}[^\s*]))?",
        kind=FailureText.OUTCOME,
        unless=(
            *("slurm-time-limit", "slurm-preempted", "slurm-node-failure", "slurm-wait", "slurm-out-of-memory"),
            "slurm-interrupted",
        ),
    ),
    Signature(
        "slurm-interrupted",
        keys=("srun: sending Ctrl-C to ",),
        cause="A user ended {step} by Ctrl-C.",
        next="If it hung before that, its last lines before the Ctrl-C are the place to look: taco-launch stacks JOB shows where each rank is while it hangs.",
        pattern=r"srun: sending Ctrl-C to (?P<step>(?:StepId=|job )\S+)",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "sge-task-refused",
        keys=("error: executing task of job ",),
        cause="Grid Engine did not start a part of job {job} on {host}: {why}.",
        next="qhost -h {host} shows whether its sge_execd answers; the parallel environment needs control_slaves TRUE (qconf -sp NAME). If it was Hydra, which uses Grid Engine's qrsh inside of such a job: mpiexec -launcher ssh uses ssh instead.",
        pattern=r"executing task of job (?P<job>\d+) failed: (?P<why>(?:[^\r\n@]{0,80}execd@(?P<host>[\w.-]*\w))?[^\r\n]*[^\s.])",
    ),
    Signature(
        "yarn-request-refused",
        keys=("InvalidResourceRequestException",),
        cause="YARN refused the request: {count} of its {what} in one container are more than any host offers ({most}).",
        next="Request at most {most} in each container, and more containers. The limits of a host are in YARN's configuration: yarn node -list -showDetails.",
        pattern=r"(?i)InvalidResourceRequestException: [^\r\n]{0,200}?requested(?P<what>[a-z]{2,20})=(?P<count>\d{1,9}), max(?:imum)?[a-z]{2,20}=(?P<most>\d{1,9})",
    ),
    Signature(
        "slurm-task-exited",
        keys=(": Exited with exit code ",),
        cause="Task {task} on {host} ended with exit code {code}.",
        next="Read that task's own last lines before this point; srun --label marks the lines of each task.",
        pattern=r"srun: error: (?P<host>[^\s:]+): tasks? (?P<task>[\d,-]+): Exited with exit code (?P<code>\d+)",
        kind=FailureText.OUTCOME,
    ),
    Signature(
        "slurm-gres",
        keys=("Invalid generic resource (gres) specification",),
        cause="Slurm refused [[job?a step of job {job}||the job]]: it requests GPUs (gres) that [[job?the job||the partition]] does not have.",
        next="[[job?scontrol show job {job} shows the job's GPUs (TRES, TresPerNode): request them with sbatch, and for the step no more than that. Inside a job, the step inherits "
        "its options: env | grep -E 'SLURM_(GRES|GPUS|TRES)', and unset what is wrong||sinfo -o '%P %G' lists what each partition has: use that name and number (--gres=gpu:N, "
        "or gpu:TYPE:N). If it shows (null) everywhere, GresTypes=gpu and Gres= are missing in slurm.conf, and gres.conf is missing on the nodes]].",
        pattern=r"(?:sbatch|srun|salloc): error: (?:Unable to create step for job (?P<job>\d+): |[^\r\n]{0,80})Invalid generic resource \(gres\) specification",
        unless=("slurm-tasks-not-said",),
    ),
    Signature(
        "slurm-tasks-not-said",
        keys=("used without either --gpus or -n/--ntasks",),
        cause="Slurm refused the job: it gives GPUs to each task (--gpus-per-task), and does not say how many tasks or GPUs there are.",
        next="Add --ntasks=N (or --gpus=N). Or give the GPUs to each host: --gpus-per-node=8 --ntasks-per-node=8 in the place of --gpus-per-task.",
    ),
    Signature(
        "slurm-step-memory",
        keys=("Memory required by task is not available",),
        cause="Slurm refused a step of job {job}: an earlier step holds the memory of the job, or srun requests more than the job has.",
        next="Give each srun its part: --exact with --mem, -n and -c (the sum may not exceed what scontrol show job {job} shows); or let steps share: srun --overlap. If there is one step, "
        "request more: sbatch --mem.",
        pattern=r"Unable to create step for job (?P<job>\d+): Memory required by task is not available",
    ),
    Signature(
        "slurm-cpus-conflict",
        keys=(" set by two different environment variables ",),
        cause="srun found two values of {option} in its environment: {one} and {other}, which a surrounding job set.",
        next="Inside the job, unset SLURM_CPUS_PER_TASK SLURM_TRES_PER_TASK, and give srun the value: --cpus-per-task=N. If the job was submitted with --tres-per-task=cpu=N, "
        "use --cpus-per-task=N there, too.",
        pattern=r"(?P<option>[\w-]+) set by two different environment variables (?P<one>\S+) != (?P<other>\S*[^\s.])",
    ),
    Signature(
        "slurm-daemon-silent",
        keys=("Zero Bytes were transmitted or received",),
        cause="A daemon of Slurm closed the connection without an answer: it refused the request, because munge's key or the clock differs there, or its version of Slurm does.",
        next="Compare date, sha256sum /etc/munge/munge.key and slurmd -V on both hosts; tail /var/log/slurm/slurmd.log (or slurmctld.log) shows the reason.",
        unless=("slurm-munge",),
    ),
    Signature(
        "slurm-prolog",
        keys=("rolog failed", "rolog script failed", "pilog script failed", "TaskProlog failed"),
        cause="A script of this cluster that Slurm runs before or after a job failed[[host? on {host}]]: Slurm takes the node out of use, and starts the job again or ends it.",
        next="scontrol show node NODE gives the reason; scontrol show config | grep -i -E 'prolog|epilog' names the script. Leave the node out: sbatch --exclude=NODE.",
        pattern=r"[Pp]rolog failed for node (?P<host>[\w.-]+)|(?:[Pp]ro|[Ee]pi)log script failed|TaskProlog failed",
    ),
    Signature(
        "slurm-nodes-not-ready",
        keys=("are still not ready", "srun: error: Node failure on "),
        cause="Node {host} of the job [[late?did not get ready in time: it boots, its prolog still runs, or its slurmd does not answer||failed while the job ran]].",
        next="sinfo -R and scontrol show node {host} show why. Leave it out: sbatch --exclude={host}.",
        pattern=r"Nodes (?P<host>\S+) are (?P<late>still not ready)|Node failure on (?P<host2>[^\s.]+)",
    ),
    Signature(
        "slurm-not-ending",
        keys=("STEPD TERMINATED",),
        cause="Slurm could not end {what} on {host}: a process did not end even when it was killed, because the kernel waits for a file server, a GPU or the network. Slurm takes such a node out of use.",
        next="On {host}: ps -eo pid,stat,wchan:30,cmd | grep ' D' and dmesg -T | tail show what it waits for; scontrol show node {host} shows whether it drains. When those processes are gone: scontrol update nodename={host} "
        "state=resume; UnkillableStepTimeout in slurm.conf gives processes longer.",
        pattern=r"\*\*\* (?P<what>(?:JOB|STEP) \S+) STEPD TERMINATED ON (?P<host>\S+)",
    ),
    Signature(
        "slurm-step-too-large",
        keys=("Requested node configuration is not available", "More processors requested than permitted"),
        cause="Slurm refused a step of job {job}: srun requests more of a node than the job has there ({why}).",
        next="Compare the options of srun with what the job has: scontrol show job {job} (NumNodes, NumCPUs, TRES). Lower -n, -c, --gpus or --mem of srun, or request more with sbatch.",
        pattern=r"Unable to create step for job (?P<job>\d+): (?P<why>Requested node configuration is not available|More processors requested than permitted)",
    ),
    Signature(
        "slurm-gpus-plugin",
        keys=("Requested GRES option unsupported by configured SelectType plugin",),
        cause="Slurm refused the job: its --gpus options require SelectType=select/cons_tres, and this cluster has another one.",
        next="Remove --gpus, --gpus-per-node, --gpus-per-task and --gpus-per-socket. --gres=gpu:N works where sinfo -o '%P %G' lists GPUs; otherwise jobs have whole nodes with their GPUs.",
    ),
    Signature(
        "slurm-refused",
        keys=(
            "srun: error: Unable to create step for job",
            "Batch job submission failed:",
            "Unable to allocate resources:",
        ),
        cause="Slurm refused [[job?a step of job {job}||the job]]: {why}.",
        next="[[node?Lower --cpus-per-task, --cpus-per-gpu, --ntasks-per-node, --mem or --gres: no node of the partition has what is requested of one node "
        "(scontrol show node NODE shows its CPUs, memory and GPUs)||Compare what is requested (nodes, tasks, CPUs, GPUs, memory, time, account) with what "
        "there is: scontrol show partition, sinfo -o '%P %l %c %m %G'; for a step: scontrol show job JOBID]][[account?. Set -A, -p and --qos to the values of "
        "one line of sacctmgr show assoc user=$USER]].",
        pattern=r"Unable to create step for job (?P<job>\d+): (?P<why>[^\r\n]*[^\s.])"
        r"|(?:sbatch|srun|salloc): error: (?:Batch job submission failed|Unable to allocate resources): (?=(?P<node>Requested node configuration is not available)?)"
        r"(?=(?P<account>Invalid (?:account|qos)|[^\r\n]{0,40}accounting/QOS policy)?)(?P<why2>[^\r\n]*[^\s.])",
        unless=(
            "slurm-gres",
            "slurm-mpi-type",
            "slurm-refused-by-site",
            "slurm-gpus-plugin",
            "slurm-step-too-large",
            "slurm-step-memory",
            "slurm-tasks-not-said",
        ),
    ),
    Signature(
        "slurm-refused-by-site",
        keys=("sbatch: error: ", "salloc: error: ", "srun: error: "),
        cause="Slurm refused the job by a rule of this cluster (its job_submit plugin): {why}.",
        next="Follow that message; the cluster's documentation shows which partitions, accounts (-A) and limits can be combined. sacctmgr show assoc user=$USER lists your accounts.",
        pattern=r"(?:sbatch|salloc|srun): error: (?!Batch job|Unable to)(?P<why>[^\r\n]*[^\s.])[ .]*\n(?:(?:sbatch|salloc|srun): error: (?!Batch job|Unable to)[^\n]*\n){0,2}"
        r"(?:sbatch|salloc|srun): error: (?:Batch job submission failed|Unable to allocate resources): Unspecified error",
        lines=4,
    ),
    Signature(
        "slurm-launch-failed",
        keys=("Task launch for ",),
        cause="Slurm could not start the tasks of a step on {host}: {why}.",
        next="On {host}: tail /var/log/slurm/slurmd.log, systemctl status slurmd; scontrol show node {host}. An invalid "
        "or expired job credential points to the clock or munge of that host (compare date there and on the "
        "controller). 'Socket timed out' means that slurmd is busy (with a container's import, for example), or that munge.key differs from the controller's.",
        pattern=r"Task launch for (?:StepId=)?\S+ failed on node (?P<host>[^\s:]+): (?!Unable to layout|Unable to satisfy cpu bind|No such process)(?P<why>[^\r\n]*[^\s.])",
    ),
    Signature(
        "slurm-pmix",
        keys=("pmixp_",),
        cause="Slurm's step daemons (PMIx) do not reach each other from {host}[[why?: {why}]], or one of the hosts arrived late.",
        next="Open the ports between compute nodes (SrunPortRange in slurm.conf, firewall). If that does not help: export SLURM_PMIX_DIRECT_CONN=false "
        "SLURM_PMIX_TIMEOUT=600.",
        pattern=r"mpi/pmix\w*: [^\r\n]*pmixp_[^\r\n]*?(?P<why>collective timeout|Cannot establish the connection|Unable to connect"
        r"|exceeded the retry limit)",
    ),
    Signature(
        "slurm-pmi-disturbed",
        keys=("mpi/pmi2: invalid ", "mpi/pmi2: failed to read PMI1"),
        cause="A program in the Slurm step does not speak the PMI of srun: most often mpirun (Hydra) runs within srun, so two launchers start the ranks.",
        next="Use one of them: srun --mpi=pmi2 PROGRAM without mpirun, or mpirun outside srun. If there is only srun, use the PMI for which the MPI was built (srun --mpi=list), in a container too.",
        pattern=r"mpi/pmi2: (?:invalid (?P<what>PMI1 init command|client request|PMI2 command)|failed to read PMI1)",
    ),
    Signature(
        "slurm-folder-missing",
        keys=("couldn't chdir to ",),
        cause="The job's folder {folder} cannot be used on a node[[why? ({why})]], so Slurm started the program in {instead}: the folder is not on storage that all nodes share, or the user may not enter it.",
        next="Submit from a folder on shared storage, or set sbatch/srun --chdir to one. Check on each node: srun -N NODES ls -ld {folder}.",
        pattern=r"couldn't chdir to [`'](?P<folder>[^'\r\n]{1,300})': (?P<why>[^:\r\n]{1,80}): going to (?P<instead>\S+) instead",
        kind=FailureText.NOTE,
    ),
    Signature(
        "slurm-pmix-other",
        keys=("pmixp_dmdx.c",),
        cause="The program's PMIx and Slurm's PMIx have different versions: {why}.",
        next="srun --mpi=list shows the versions that Slurm has (pmix_v3, pmix_v4): choose the version of the program's library (ldd PROGRAM | grep pmix), or start it with mpirun inside the allocation.",
        pattern=r"mpi/pmix\w*: ERROR: Bad request from \S+: (?P<why>nspace [^\r\n]*[^\s.])",
    ),
    Signature(
        "slurm-step-waits",
        keys=("step creation temporarily disabled, retrying", "step creation still disabled, retrying"),
        cause="A step waits for resources that other steps of the job hold ({why}): since Slurm 20.11, steps do not share CPUs, GPUs or memory by default.",
        next="srun --overlap (or export SLURM_OVERLAP=1) lets steps share. To run them side by side, give each srun --exact with -n, -c, --mem and --gpus; the sum may not exceed what the job has.",
        pattern=r"step creation (?:temporarily|still) disabled, retrying \((?P<why>[^)\r\n]+)\)",
        kind=FailureText.FALLBACK,
        at_end=r"retrying \(|(?i:cancel|terminat|time limit|interrupt)",
    ),
    Signature(
        "slurm-binding",
        keys=(
            "Unable to layout tasks on given cpus",
            "failed to distribute tasks (bind_type",
            "Unable to satisfy cpu bind request",
        ),
        cause="Slurm cannot bind the step's tasks to the CPUs that the job has: the step and the job request different numbers of CPUs or different kinds of binding.",
        next="Inside a job: unset SLURM_CPU_BIND SLURM_CPU_BIND_TYPE SLURM_CPU_BIND_LIST, use the same -c for srun as "
        "for sbatch, or use srun --cpu-bind=none.",
    ),
    Signature(
        "slurm-plugin-option",
        keys=('Warning: SPANK plugin "',),
        cause="Slurm on {host} does not know the option --{option} of the plugin {plugin}: the plugin is installed where the job was submitted, and slurmd there has not loaded "
        "it, so the job runs without it (a container's job then runs outside its container).",
        next="Install the plugin and the same plugstack.conf on every node, then systemctl restart slurmd (SPANK plugins are loaded at its start); srun --help | grep {option} "
        "on a node shows whether it is there.",
        pattern=r'SPANK plugin "(?P<plugin>[\w-]+)" option "(?P<option>[\w-]+)" not found',
    ),
    Signature(
        "pyxis-folder",
        keys=("pyxis: couldn't mkdir ",),
        cause="Slurm's container plugin (pyxis) could not make its folder {path} on {host}: {why}.",
        next="Create its parent folder on every node, and again after each boot (/run is empty then: use tmpfiles.d or "
        "slurmd's ExecStartPre). Or name another folder: runtime_path=/PATH after spank_pyxis.so in plugstack.conf.",
        pattern=r"pyxis: couldn't mkdir (?P<path>[^\s:]+): (?P<why>[^\r\n]*[^\s.])",
    ),
    Signature(
        "registry-refused-enroot",
        keys=("returned error code: 401", "returned error code: 403"),
        cause="The registry {registry} refused the image {image}: {why}. The login is missing or wrong, or the image's name lacks its registry.",
        next="Write the registry into the name: --container-image=REGISTRY#NAME:TAG (without one it is Docker Hub). Put its login into ~/.config/enroot/.credentials: "
        "machine {registry} login USER password TOKEN.",
        pattern=r"URL https?://(?P<registry>[^/\s]+)/v2/(?P<image>[^\s]+?)/manifests/\S+ returned error code: (?P<why>40[13] \w+)",
    ),
    Signature(
        "slurm-plugin-failed",
        keys=("launch failed: Plugin initialization failed", "Plugin stack initialization failed"),
        cause="A plugin of Slurm failed on a node when it started the step's tasks (plugstack.conf lists them: pyxis, for example).",
        next="Read the reason in slurmd's log of that node: grep -iE 'spank|pyxis' /var/log/slurm/slurmd.log.",
        unless=("pyxis-folder",),
    ),
    Signature(
        "slurm-task-signal",
        keys=("srun: error: ",),
        cause="Task {task} on {host} was ended by a signal: {why}.",
        next="For a bus error, check df -h /dev/shm, which is most often full; for a crash, read the lines before it (PYTHONFAULTHANDLER=1 shows more). If it was "
        "terminated, look for the task that ended first[[gap?: most likely one between {gap} and {end}, which this list lacks]].",
        pattern=r"srun: error: (?P<host>[^\s:]+): tasks? (?=(?:(?:\d+-)?(?P<gap>\d+),(?P<end>\d+)-\d+|\d+-(?P<gap2>\d+),(?P<end2>\d+)): Term)?(?P<task>[\d,-]+): (?P<why>Aborted|Terminated|Segmentation fault|Bus error"
        r"|Illegal instruction|Floating point exception)",
        kind=FailureText.OUTCOME,
        unless=("slurm-out-of-memory", "slurm-time-limit", "slurm-preempted"),
    ),
    Signature(
        "slurm-program-missing",
        keys=("execve(): ",),
        cause="Slurm could not start {file} on {host}: {why}.",
        next="[[orted?export SLURM_EXPORT_ENV=ALL before mpirun gives its daemons your PATH. ]][[script?Install the program that the script's first line (#!) names on every node, and give the script Unix line ends: sed -i 's/\\r$//' SCRIPT. If "
        "both are right, slurmd's spool folder was emptied: systemctl restart slurmd there||On that node, run ls -l {file}: a shared folder may not be mounted "
        "there, or the program is not on the PATH]].",
        pattern=r"error: execve\(\): (?=(?P<orted>(?:orted|prted):)?)(?P<file>(?:\S+/(?P<script>slurm_script))|[^\r\n:]+): (?P<why>[^\r\n]*[^\s.])",
    ),
    Signature(
        "slurm-no-configuration",
        keys=("Could not establish a configuration source", "fetch_config: DNS SRV lookup failed"),
        cause="Slurm's commands on this machine cannot find the cluster: the machine has no slurm.conf, and no server provided one.",
        next="Submit from a login node of the cluster. In a container: mount /etc/slurm (and /run/munge), or export SLURM_CONF=/PATH/slurm.conf.",
    ),
    Signature(
        "slurm-controller-silent",
        keys=("Unable to contact slurm controller", "Unable to contact slurmctld"),
        cause="Slurm's controller does not answer[[why? ({why})]].",
        next="scontrol ping shows which one is down; run systemctl status slurmctld there. Try again when it is back: running jobs continue.",
        pattern=r"Unable to contact (?:slurm controller|slurmctld) ?\(?(?P<why>[^)\r\n]*[^\s.)])?",
        unless=("slurm-no-configuration",),
    ),
    Signature(
        "slurm-munge",
        keys=("Munge decode failed", "Munge encode failed", "If munged is up"),
        cause="Slurm cannot check who sent a request: munge on {host} fails ({why}).",
        next="On that host: systemctl status munge; date on all hosts (the clocks may differ by 5 minutes at most), and the same "
        "/etc/munge/munge.key. A container needs /run/munge mounted.",
        pattern=r"Munge (?:de|en)code failed: (?P<why>[^\r\n]*[^\s.])|(?P<why2>If munged is up[^\r\n]*[^\s.])",
        unless=("file-system-failed",),
    ),
    Signature(
        "slurm-script-refused",
        keys=("Batch script contains DOS line breaks", "This does not look like a batch script"),
        cause="sbatch refuses the script: [[dos?it has Windows line endings||its first line is no #! line]].",
        next="[[dos?sed -i 's/\\r$//' SCRIPT||Begin it with #!/bin/bash]].",
        pattern=r"contains (?P<dos>DOS) line breaks|This does not look like a batch script",
    ),
    Signature(
        "slurm-wait",
        keys=("srun: First task exited ",),
        cause="srun ended the other tasks {seconds} s after the first one had ended (--wait, or WaitTime in slurm.conf).",
        next="Find out why that task ended first: read the last lines of the task listed as exited. If it finished normally, srun --wait=0 lets the other tasks finish.",
        pattern=r"First task exited (?P<seconds>\d+)s ago",
        kind=FailureText.OUTCOME,
    ),
    Signature(
        "slurm-task-killed",
        keys=(": Killed",),
        cause="Task {task} on {host} was killed (signal 9), most often because memory ran out.",
        next="dmesg -T | grep -i kill on {host}. Request more memory: sbatch --mem=0 (all of a node's) or --mem-per-cpu; or smaller batches, fewer data loader "
        "workers.",
        pattern=r"srun: error: (?P<host>[^\s:]+): tasks? (?P<task>[\d,-]+): Killed",
        kind=FailureText.OUTCOME,
        unless=("slurm-out-of-memory", "slurm-wait"),
    ),
    Signature(
        "slurm-memory-conflict",
        keys=("SLURM_MEM_PER_NODE are mutually exclusive",),
        cause="srun was given two kinds of memory limits: one by an option, the other by a variable that it inherited from a surrounding job.",
        next="unset SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU SLURM_MEM_PER_NODE before this srun or sbatch, or use the same option as the surrounding job.",
    ),
    Signature(
        "slurm-pmi-twice",
        keys=("PMK_KVS_Barrier duplicate request from task ",),
        cause="Several processes of Slurm's task {task} start MPI, but each task can be only one rank: the program starts copies of itself, or other programs, that call MPI_Init.",
        next="Use srun --ntasks=N with one MPI process per task. If the program starts worker processes, they must not call MPI_Init, or must be started with PMI_FD, PMI_RANK and SLURM_* unset.",
        pattern=r"PMK_KVS_Barrier duplicate request from task (?P<task>\d+)",
    ),
    Signature(
        "slurm-mpi-type",
        keys=(
            *(
                "nvalid MPI type",
                "cannot find mpi plugin for ",
                "annot create mpi context",
                "annot create context for mpi/",
            ),
            *("specified plugin name for mpi/", "MPI: Unable to load any plugin"),
        ),
        cause="This Slurm has no MPI plugin[[plugin? {plugin}]] that srun can load, so it started no task.",
        next="Choose one that srun --mpi=list shows (pmi2, or pmix_vN): srun --mpi=NAME. If the program's MPI needs PMIx, install Slurm's pmix plugin (slurm-pmix, with its libpmix) on every node, or start the program with its own mpirun in the job.",
        pattern=r"nvalid MPI type(?: '(?P<plugin>[^'\r\n]{1,40})')?|(?:plugin(?: name)? for|context for|context) (?:mpi/)?(?P<plugin2>\w+)|MPI: Unable to load any plugin|annot create mpi context",
        unless=("slurm-pmix-library",),
    ),
    Signature(
        "slurm-pmix-library",
        keys=("can not load PMIx library",),
        cause="Slurm's plugin {plugin} does not find the PMIx library that it was built for.",
        next="Install that libpmix on every node, so that ldconfig -p | grep libpmix lists it; then check srun --mpi=list. A job that does not use --mpi={plugin} can ignore this.",
        pattern=r"mpi/(?P<plugin>pmix\w*): [^\r\n]{0,80}can not load PMIx library",
        kind=FailureText.FALLBACK,
        at_end=r"PMIx library|mpi/pmix|MPI: |Invalid MPI type",  # slurmd says so at its start, too
    ),
    Signature(
        "slurm-tasks-as-number",
        keys=("invalid literal for int() with base 10: '",),
        cause="The program expects a number and reads one of Slurm's lists, {value}: N(xM) means N on each of M nodes.",
        next="Read SLURM_NTASKS_PER_NODE (set if --ntasks-per-node is given), or SLURM_NTASKS and SLURM_JOB_NUM_NODES; not SLURM_TASKS_PER_NODE, "
        "SLURM_STEP_TASKS_PER_NODE or SLURM_JOB_CPUS_PER_NODE.",
        pattern=r"base 10: '(?P<value>\d+\(x\d+\)[\d(x),]{0,80})'",
    ),
    Signature(
        "slurm-pmi2-missing",
        keys=("PMI2_Init failed to intialize",),
        cause="Open MPI on {host} found no PMI2 server: srun started the ranks with another --mpi type than this Open MPI was built for.",
        next="srun --mpi=list shows what Slurm offers: use srun --mpi=pmi2, or --mpi=pmix if Open MPI has PMIx (ompi_info | grep -i pmix). Or use mpirun inside the "
        "allocation.",
    ),
)
# A program that is signalled before its time ends may ask for its own requeue.
OF_REQUEUE = (
    Qualifier(
        r"\A(?=[\s\S]*?\bSIGUSR[12]\b)[\s\S]*?\*\*\* (?P<what>(?:JOB|STEP) \S+) ON [^\n]*DUE TO JOB REQUEUE",
        "Slurm requeued {what}, most likely at the request of the program itself (submitit, Lightning): Slurm sent it SIGUSR, as --signal asks for, since its time limit was near or a job of higher priority came.",
        "Compare scontrol show job JOBID (TimeLimit, StartTime): if its time was ending, request more (--time; submitit: timeout_min). The job starts again by itself, and must continue from a checkpoint.",
    ),
)
