"""Recognise what ssh, and sshd through it, prints when mpirun cannot start its daemon (OpenSSH 7 to 9: ssh, sshconnect, kex)."""

from taco_launch.core.signatures.known import FailureText, Signature

_CONNECT = r"connect to host (?P<host>\S+) port (?P<port>\d+): "

SSH = (
    Signature(
        "ssh-asks-for-a-password",
        keys=("'s password:",),
        cause="ssh asks for the password of {user} on {host}, which nothing types for a launcher.",
        next="Install a key (ssh-copy-id {user}@{host}) until ssh {user}@{host} true succeeds without a question. Do that for every host.",
        pattern=r"(?P<user>[\w.-]{1,64})@(?P<host>[\w.:-]{1,253})'s password:",
        at_end=r"'s password:",
        unless=("ssh-permission-denied",),
    ),
    Signature(
        "host-ipv6-literal",
        keys=("illegal character in the following node name", "Could not resolve hostname [:"),
        cause="Open MPI does not accept an IPv6 address as a host: it read the bracket as the whole name.",
        next="Give the address a name in /etc/hosts on every host and use that name in -H and the hostfile.",
        pattern=r"node name:\s+node: +\[|hostname \[:",
        lines=4,
    ),
    Signature(
        "ssh-unresolvable",
        keys=("Could not resolve hostname ",),
        cause="ssh cannot turn the name {host} into an address ({why}).",
        next="[[pod?Check whether that pod and its headless service are ready: kubectl get pods,endpoints. If the launcher starts before its workers, set launcherCreationPolicy: WaitForWorkersReady in the MPIJob."
        "||Check it where mpirun runs: getent hosts {host}; use the address, or add the name to /etc/hosts]][[slots? (mpirun before 3.0 reads HOST:SLOTS as a "
        "name: which -a mpirun)]][[pod?||. If the name was cut at its first dot, which mpirun 4.1 does: --mca orte_keep_fqdn_hostnames 1.]]",
        pattern=r"Could not resolve hostname [`'\"]?(?=(?:[^\s:]+:(?P<slots>\d+): )?)(?=(?:(?P<job>[\w-]{1,63}?)(?P<pod>-(?:worker|node-\d+|launcher-\d+)-\d+)\.(?P=job)(?:-worker)?[.:`'\"])?)(?P<host>[^\s:\[]\S*?)[`'\"]?: (?P<why>[^\r\n]*\S)",
    ),
    Signature(
        "ssh-refused",
        keys=(": Connection refused",),
        cause="{host} is up, but no sshd listens on its port {port}.",
        next="Start the sshd on {host} (for a training container, start the one in the container), or correct ssh_port. Check: "
        "ssh -p {port} {host} true.",
        pattern=_CONNECT + "Connection refused",
    ),
    Signature(
        "ssh-timed-out",
        keys=("onnection timed out", "Operation timed out"),
        cause="{host} did not answer ssh in time: it is down, or a firewall drops traffic to its ssh port.",
        next="Check: ping {host}, then ssh -v {host} true. Leave the host out with --exclude until it is back, or open the port in "
        "its firewall or security group.",
        pattern=r"(?:connect to host (?P<host>\S+) port \d+: (?:Connection|Operation) timed out"
        r"|Connection timed out during banner exchange)",
    ),
    Signature(
        "ssh-no-route",
        keys=(": No route to host", ": Network is unreachable"),
        cause="There is no way from the machine that runs mpirun to {host}: it is down, or the address is in a network that "
        "this machine has no route to.",
        next="Check: ip route get {host}; ping {host}. Correct the address in the inventory or hostfile, or leave the host "
        "out with --exclude.",
        pattern=_CONNECT + "(?:No route to host|Network is unreachable)",
    ),
    Signature(
        "ssh-host-key-changed",
        keys=("REMOTE HOST IDENTIFICATION HAS CHANGED",),
        cause="The host key of {host} differs from the one in known_hosts: it was reinstalled, its container was created "
        "again, or something else answers at that address.",
        next="If you know why it changed: ssh-keygen -R [[known?'{known}'||HOST (of a port other than 22: '[HOST]:PORT')]][[file? -f {file}]], then ssh to it once "
        "and check the fingerprint.",
        pattern=r"REMOTE HOST IDENTIFICATION HAS CHANGED"
        r"(?=(?:[\s\S]{0,1200}?Offending (?:\S+ )?key in (?P<file>\S+):\d+)?)"
        r"(?=(?:[\s\S]{0,1500}?[Hh]ost key for (?P<known>(?P<host>\S+)) has changed)?)",
        lines=16,
    ),
    Signature(
        "ssh-host-key-unknown",
        keys=(" host key is known for ",),
        cause="ssh does not know the host key of {host}, and strict host key checking prevents it from asking.",
        next="Compare the fingerprint once: ssh -p PORT {host} true, and answer yes; or add what ssh-keyscan -p PORT {host} "
        "gives to known_hosts. Do this on the machine that runs mpirun, as the user that runs it.",
        pattern=r"host key is known for (?P<host>\S+) and",
    ),
    Signature(
        "ssh-home-not-writable",
        keys=("Could not create directory '",),
        cause="ssh cannot keep the keys of other hosts: {folder} does not exist, and the home that should have it is missing or not writable for that user. It therefore trusts no host.",
        next="Check it as that user, where ssh runs: ls -ld {folder} $HOME. Create the home (or set another with usermod -d), then ssh to each host once to add its key.",
        pattern=r"Could not create directory '(?P<folder>[^'\r\n]*\.ssh)'[\s\S]{0,1200}?Host key verification failed",
        lines=9,
    ),
    Signature(
        "ssh-host-key-refused",
        keys=("Host key verification failed",),
        cause="ssh has no trusted host key for a host, and cannot ask the user.",
        next="ssh to each host once from the machine that runs mpirun, as the same user and with the same port, and "
        "compare the fingerprint; ssh then adds the key to known_hosts.",
        unless=("ssh-host-key-changed", "ssh-host-key-unknown", "ssh-home-not-writable"),
    ),
    Signature(
        "ssh-key-modes",
        keys=("are too open.",),
        cause="Others can read the private key {file}, so ssh does not use it.",
        next="chmod 600 {file}",
        pattern=r"Permissions \d+ for '(?P<file>[^']+)' are too open",
    ),
    Signature(
        "ssh-key-missing",
        keys=("Warning: Identity file ",),
        cause="The private key {file} that ssh is configured to use does not exist.",
        next="Correct identity_file in the inventory (or -i in plm_rsh_args), or make the key: ssh-keygen -t ed25519 "
        "-f {file}, and add its .pub to authorized_keys on every host.",
        pattern=r"Identity file (?P<file>.+?) not accessible",
    ),
    Signature(
        "ssh-key-format",
        keys=("Load key ", "not a valid RSA private key file"),
        cause="[[file?The file {file}||The key file]] is not a private key that this ssh can read.",
        next="Check it: ssh-keygen -y -f [[file?{file}||FILE]]. A key that was pasted may lack its last newline; an old ssh or paramiko "
        "cannot read newer formats.",
        pattern=r'Load key "(?P<file>[^"]+)": (?:invalid format|error in libcrypto)|not a valid RSA private key file',
    ),
    Signature(
        "ssh-key-owner",
        keys=("bad ownership or modes for ",),
        cause="sshd refuses the key because others may write {file}.",
        next="On that host: chmod go-w {file}, and ~/.ssh 0700, authorized_keys 0600, all owned by the user.",
        pattern=r"bad ownership or modes for (?:file |directory )?(?P<file>\S+)",
    ),
    Signature(
        "ssh-too-many-keys",
        keys=("Too many authentication failures",),
        cause="ssh offered {host} so many keys that sshd hung up before the right one came.",
        next="Name the key and use no other: plm_rsh_args '-i KEY -o IdentitiesOnly=yes'.",
        pattern=r"(?:Received disconnect from (?P<host>\S+) port \d+:2: )?Too many authentication failures",
    ),
    Signature(
        "ssh-permission-denied",
        keys=("Permission denied (", "Permission denied, please try again", "No authentication methods available"),
        cause="{host} rejected the keys that ssh offered for this user.",
        next="Add the public key to ~/.ssh/authorized_keys of that user on {host} (ssh-copy-id -i KEY.pub -p PORT USER@{host}), and check the user and the port: the sshd of the host may answer instead of a container's. "
        "If the key is there, run chmod 700 ~ ~/.ssh; chmod 600 ~/.ssh/authorized_keys as its owner: sshd's log names what it refuses.",
        pattern=r"(?:^|[\s@])(?P<host>[^\s@]+): Permission denied \((?:publickey|password|keyboard-interactive|gssapi|hostbased)|Permission denied, please|No authentication methods",
    ),
    Signature(
        "ssh-dropped",
        keys=("_exchange_identification: ",),
        cause="sshd on {host} hung up before ssh could log in: too many logins at once (its MaxStartups, 10:30:100 unless "
        "set), an address that it rejects, or a service that is not sshd.",
        next="Set MaxStartups 200 in that host's sshd_config and reload it, or start fewer connections at once: --mca "
        "plm_rsh_num_concurrent 8. On the host, check journalctl -u ssh and /etc/hosts.deny.",
        pattern=r"_exchange_identification: (?:read: )?(?:Connection (?:closed|reset)|[Cc]lient sent invalid|banner)"
        r"(?:[\s\S]{0,200}?Connection (?:closed|reset) by (?P<host>\S+) port)?",
        lines=3,
    ),
    Signature(
        "ssh-closed",
        keys=("Connection closed by ",),
        cause="sshd on {host} closed the connection during the login: it rejects this user, or the account is locked.",
        next="On {host}: journalctl -u ssh -n 50; look for AllowUsers, PermitRootLogin and pam in it.",
        pattern=r"Connection closed by (?:(?:authenticating|invalid) user \S+ )?(?P<host>\S+) port \d+",
        unless=("ssh-dropped",),
    ),
    Signature(
        "ssh-algorithms",
        keys=("Unable to negotiate with ",),
        cause="ssh and the sshd of {host} have no {what} in common: one of them is much older than the other.",
        next="Update the older one, or allow what it offers for that host in ~/.ssh/config[[offer?: {what} {offer}]].",
        pattern=r"Unable to negotiate with (?P<host>\S+) port \d+: no matching (?P<what>[\w ]+?) found"
        r"(?:\. Their offer: (?P<offer>\S+))?",
    ),
    Signature(
        "ssh-lost",
        keys=("send disconnect: Broken pipe", "not responding.", "packet_write_wait: Connection to"),
        cause="The ssh connection to {host} broke while the job ran: the host went down, or a device in between dropped an idle "
        "connection.",
        next="See that {host} is up and has not rebooted: ssh {host} uptime. To keep idle connections open: "
        "plm_rsh_args '-o ServerAliveInterval=30'.",
        pattern=r"send disconnect: Broken pipe|Timeout, server (?P<host>\S+) not responding"
        r"|packet_write_wait: Connection to",
    ),
    Signature(
        "ssh-forwarding-off",
        keys=("administratively prohibited",),
        cause="The sshd of a jump host forbids TCP forwarding, which a jump host requires.",
        next="Set AllowTcpForwarding yes in its sshd_config and reload sshd, or reach the hosts without a jump host.",
        pattern="administratively prohibited: open failed",
    ),
    Signature(
        "ssh-environment-readonly",
        keys=(": readonly variable",),
        cause="The caller's whole environment was sent to the host, and the shell there refused {name}.",
        next="Send only what the job needs: -x NAME for each.",
        pattern=r"(?P<name>\w+): readonly variable",
        kind=FailureText.OUTCOME,
    ),
    Signature(
        "ssh-missing",
        keys=('The value of the MCA parameter "plm_rsh_agent"',),
        cause="There is no ssh where mpirun runs.",
        next="Install it in the image or on the host: apt-get install openssh-client.",
    ),
    Signature(
        "ssh-config-refused",
        keys=("Bad owner or permissions on ", "bad configuration options", "Bad configuration option: "),
        cause="ssh does not start: it refuses its own configuration[[file? {file}]][[owner?, which another user owns or may write]][[option?: it does not "
        "know the option {option}]].",
        next="[[owner?chown it to the user of the ranks, and chmod 600 {file}||Remove that line, or put IgnoreUnknown NAME above it: "
        "an older ssh knows fewer options]].",
        pattern=r"(?P<owner>Bad owner) or permissions on (?P<file>\S+)|(?:(?P<file2>/\S+): )?(?:line \d+: )?Bad configuration option: (?P<option>\S+)"
        r"|(?P<file3>/\S+): terminating, \d+ bad configuration options",
    ),
    Signature(
        "ssh-no-user",
        keys=("No user exists for uid ",),
        cause="ssh does not start where mpirun runs: the user ID {uid} has no user name there. This happens in a container that runs as a user of "
        "its host.",
        next="Give it one: mount /etc/passwd and /etc/group read-only, add the user in the image, or run the container as root.",
        pattern=r"No user exists for uid (?P<uid>\d+)",
    ),
    Signature(
        "sshd-not-started",
        keys=("no hostkeys available", "Missing privilege separation directory", "Cannot bind any address"),
        cause="The sshd of {host} does not start: {why}.",
        next="Run /usr/sbin/sshd -t on that host, which shows the reason. If host keys are missing: ssh-keygen -A; if the folder is missing: mkdir -p /run/sshd; if "
        "the port is in use: ss -ltnp shows by what, and sshd -p 2222 uses another one.",
        pattern=r"(?P<why>no hostkeys available|Missing privilege separation directory: \S*[^\s.]|Cannot bind any address)",
    ),
    Signature(
        "ssh-broken",
        keys=("ssh_dispatch_run_fatal: ",),
        cause="The ssh connection to {host} broke in the middle: {why}.",
        next="Use the same MTU on all hosts and switches (test 9000 with ping -M do -s 8972 {host}), and give no two hosts the same address: something in between "
        "changes or drops packets. If the cipher is the cause: plm_rsh_args '-c aes128-ctr'.",
        pattern=r"ssh_dispatch_run_fatal: Connection to (?P<host>\S+) port \d+: (?P<why>[^\r\n]*[^\s.])",
    ),
    Signature(
        "pdsh-command-failed",
        keys=("pdsh@",),
        cause="What pdsh ran on {host} ended with exit code {code}[[missing?: a command was not found there]][[refused?: the program cannot be executed there]].",
        next="[[missing?Compare the PATH of a shell that is no login shell: ssh {host} 'echo $PATH; command -v PROGRAM'. Install the program there, name it by its full path, or export the PATH in ~/.bashrc above its test for interactive shells (DeepSpeed: PATH=... in ~/.deepspeed_env)"
        "||Read the lines of {host} above it, which begin with its name]].",
        pattern=r"pdsh@[^\s:]+: (?P<host>[^\s:]+): (?:ssh )?exited with exit code (?P<code>(?!255\b|0\b)(?:(?P<missing>127)|(?P<refused>126)|\d+))\b",
        kind=FailureText.OUTCOME,
    ),
    Signature(
        "pdsh-failed",
        keys=("pdsh@",),
        cause="pdsh could not run its command on {host}: {why}.",
        next="Try by hand: ssh {host} true. PDSH_RCMD_TYPE=ssh makes pdsh use ssh; taco-launch needs no pdsh.",
        pattern=r"pdsh@[^\s:]+: (?P<host>[^\s:]+): (?P<why>ssh exited with exit code 255|mcmd: [^\r\n]*[^\s.]|rcmd: [^\r\n]*[^\s.])",
        unless=(
            "ssh-refused",
            "ssh-permission-denied",
            "ssh-timed-out",
            "ssh-no-route",
            "ssh-unresolvable",
            "ssh-host-key-refused",
        ),
    ),
)
