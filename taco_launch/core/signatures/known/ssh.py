"""What ssh, and sshd through it, says when mpirun cannot start its daemon (OpenSSH 7 to 9: ssh, sshconnect, kex)."""

from taco_launch.core.signatures.known import FailureText, Signature

_CONNECT = r"connect to host (?P<host>\S+) port (?P<port>\d+): "

SSH = (
    Signature(
        "host-ipv6-literal",
        ("illegal character in the following node name", "Could not resolve hostname [:"),
        "Open MPI does not accept an IPv6 address as a host: it read the bracket as the whole name.",
        "Give the address a name in /etc/hosts on every host and use that name in -H and the hostfile.",
        r"node name:\s+node: +\[|hostname \[:",
        lines=4,
    ),
    Signature(
        "ssh-unresolvable",
        ("Could not resolve hostname ",),
        "ssh cannot turn the name {host} into an address ({why}).",
        "Check it where mpirun runs: getent hosts {host}. Use the address, or add the name to /etc/hosts. If the name "
        "was cut at its first dot, which mpirun 4.1 does: --mca orte_keep_fqdn_hostnames 1.[[slots? An mpirun that "
        "does not know HOST:SLOTS reads it as a host name. Check which -a mpirun and mpirun --version: Open MPI 3 and newer know it.]]",
        r"Could not resolve hostname (?=(?:[^\s:]+:(?P<slots>\d+): )?)(?P<host>[^\s:\[]\S*?): (?P<why>[^\r\n]*\S)",
    ),
    Signature(
        "ssh-refused",
        (": Connection refused",),
        "{host} is up, but no sshd listens on its port {port}.",
        "Start the sshd on {host} (for a training container, start the one in the container), or correct ssh_port. Check: "
        "ssh -p {port} {host} true.",
        _CONNECT + "Connection refused",
    ),
    Signature(
        "ssh-timed-out",
        ("onnection timed out", "Operation timed out"),
        "{host} did not answer ssh in time: it is down, or a firewall drops traffic to its ssh port.",
        "Check: ping {host}, then ssh -v {host} true. Leave the host out with --exclude until it is back, or open the port in "
        "its firewall or security group.",
        r"(?:connect to host (?P<host>\S+) port \d+: (?:Connection|Operation) timed out"
        r"|Connection timed out during banner exchange)",
    ),
    Signature(
        "ssh-no-route",
        (": No route to host", ": Network is unreachable"),
        "There is no way from the machine that runs mpirun to {host}: it is down, or the address is in a network that "
        "this machine has no route to.",
        "Check: ip route get {host}; ping {host}. Correct the address in the inventory or hostfile, or leave the host "
        "out with --exclude.",
        _CONNECT + "(?:No route to host|Network is unreachable)",
    ),
    Signature(
        "ssh-host-key-changed",
        ("REMOTE HOST IDENTIFICATION HAS CHANGED",),
        "The host key of {host} differs from the one in known_hosts: it was reinstalled, its container was created "
        "again, or something else answers at that address.",
        "When you know why it changed: ssh-keygen -R [[known?'{known}'||HOST (of a port other than 22: '[HOST]:PORT')]][[file? -f {file}]], then ssh to it once and check the "
        "fingerprint.",
        r"REMOTE HOST IDENTIFICATION HAS CHANGED"
        r"(?=(?:[\s\S]{0,1200}?Offending (?:\S+ )?key in (?P<file>\S+):\d+)?)"
        r"(?=(?:[\s\S]{0,1500}?[Hh]ost key for (?P<known>(?P<host>\S+)) has changed)?)",
        lines=16,
    ),
    Signature(
        "ssh-host-key-unknown",
        (" host key is known for ",),
        "ssh does not know the host key of {host}, and strict host key checking prevents it from asking.",
        "Compare the fingerprint once: ssh -p PORT {host} true, and answer yes; or add what ssh-keyscan -p PORT {host} "
        "gives to known_hosts. Do this on the machine that runs mpirun, as the user that runs it.",
        r"host key is known for (?P<host>\S+) and",
    ),
    Signature(
        "ssh-host-key-refused",
        ("Host key verification failed",),
        "ssh has no trusted host key for a host, and cannot ask the user.",
        "ssh to each host once from the machine that runs mpirun, as the same user and with the same port, and "
        "compare the fingerprint; ssh then adds the key to known_hosts.",
        unless=("ssh-host-key-changed", "ssh-host-key-unknown"),
    ),
    Signature(
        "ssh-key-modes",
        ("are too open.",),
        "Others can read the private key {file}, so ssh does not use it.",
        "chmod 600 {file}",
        r"Permissions \d+ for '(?P<file>[^']+)' are too open",
    ),
    Signature(
        "ssh-key-missing",
        ("Warning: Identity file ",),
        "The private key {file} that ssh is configured to use does not exist.",
        "Correct identity_file in the inventory (or -i in plm_rsh_args), or make the key: ssh-keygen -t ed25519 "
        "-f {file}, and add its .pub to authorized_keys on every host.",
        r"Identity file (?P<file>.+?) not accessible",
    ),
    Signature(
        "ssh-key-format",
        ("Load key ", "not a valid RSA private key file"),
        "[[file?The file {file}||The key file]] is not a private key that this ssh can read.",
        "Check it: ssh-keygen -y -f [[file?{file}||FILE]]. A key that was pasted may lack its last newline; an old ssh or paramiko "
        "cannot read newer formats.",
        r'Load key "(?P<file>[^"]+)": (?:invalid format|error in libcrypto)|not a valid RSA private key file',
    ),
    Signature(
        "ssh-key-owner",
        ("bad ownership or modes for ",),
        "sshd refuses the key because others may write {file}.",
        "On that host: chmod go-w {file}, and ~/.ssh 0700, authorized_keys 0600, all owned by the user.",
        r"bad ownership or modes for (?:file |directory )?(?P<file>\S+)",
    ),
    Signature(
        "ssh-too-many-keys",
        ("Too many authentication failures",),
        "ssh offered {host} so many keys that sshd hung up before the right one came.",
        "Name the key and use no other: plm_rsh_args '-i KEY -o IdentitiesOnly=yes'.",
        r"(?:Received disconnect from (?P<host>\S+) port \d+:2: )?Too many authentication failures",
    ),
    Signature(
        "ssh-permission-denied",
        ("Permission denied (", "Permission denied, please try again", "No authentication methods available"),
        "{host} rejected the keys that ssh offered for this user.",
        "Add the public key to ~/.ssh/authorized_keys of that user on {host} (ssh-copy-id -i KEY.pub -p PORT "
        "USER@{host}). Also check the user and the port: if a training container runs on the host, the sshd of the host itself may have answered.",
        r"(?:^|[\s@])(?P<host>[^\s@]+): Permission denied \((?:publickey|password|keyboard-interactive|gssapi|hostbased)|Permission denied, please|No authentication methods",
    ),
    Signature(
        "ssh-dropped",
        ("_exchange_identification: ",),
        "sshd on {host} hung up before ssh could log in: too many logins at once (its MaxStartups, 10:30:100 unless "
        "set), an address that it rejects, or a service that is not sshd.",
        "Set MaxStartups 200 in that host's sshd_config and reload it, or start fewer connections at once: --mca "
        "plm_rsh_num_concurrent 8. On the host, check journalctl -u ssh and /etc/hosts.deny.",
        r"_exchange_identification: (?:read: )?(?:Connection (?:closed|reset)|[Cc]lient sent invalid|banner)"
        r"(?:[\s\S]{0,200}?Connection (?:closed|reset) by (?P<host>\S+) port)?",
        lines=3,
    ),
    Signature(
        "ssh-closed",
        ("Connection closed by ",),
        "sshd on {host} closed the connection during the login: it rejects this user, or the account is locked.",
        "On {host}: journalctl -u ssh -n 50; look for AllowUsers, PermitRootLogin and pam in it.",
        r"Connection closed by (?:(?:authenticating|invalid) user \S+ )?(?P<host>\S+) port \d+",
        unless=("ssh-dropped",),
    ),
    Signature(
        "ssh-algorithms",
        ("Unable to negotiate with ",),
        "ssh and the sshd of {host} have no {what} in common: one of them is much older than the other.",
        "Update the older one, or allow what it offers for that host in ~/.ssh/config[[offer?: {what} {offer}]].",
        r"Unable to negotiate with (?P<host>\S+) port \d+: no matching (?P<what>[\w ]+?) found"
        r"(?:\. Their offer: (?P<offer>\S+))?",
    ),
    Signature(
        "ssh-lost",
        ("send disconnect: Broken pipe", "not responding.", "packet_write_wait: Connection to"),
        "The ssh connection to {host} broke while the job ran: the host went down, or a device in between dropped an idle "
        "connection.",
        "See that {host} is up and has not rebooted: ssh {host} uptime. To keep idle connections open: "
        "plm_rsh_args '-o ServerAliveInterval=30'.",
        r"send disconnect: Broken pipe|Timeout, server (?P<host>\S+) not responding"
        r"|packet_write_wait: Connection to",
    ),
    Signature(
        "ssh-forwarding-off",
        ("administratively prohibited",),
        "The sshd of a jump host forbids TCP forwarding, which a jump host requires.",
        "Set AllowTcpForwarding yes in its sshd_config and reload sshd, or reach the hosts without a jump host.",
        "administratively prohibited: open failed",
    ),
    Signature(
        "ssh-environment-readonly",
        (": readonly variable",),
        "The caller's whole environment was sent to the host, and the shell there refused {name}.",
        "Send only what the job needs: -x NAME for each.",
        r"(?P<name>\w+): readonly variable",
        kind=FailureText.OUTCOME,
    ),
    Signature(
        "ssh-missing",
        ('The value of the MCA parameter "plm_rsh_agent"',),
        "There is no ssh where mpirun runs.",
        "Install it in the image or on the host: apt-get install openssh-client.",
    ),
    Signature(
        "ssh-config-refused",
        ("Bad owner or permissions on ", "bad configuration options", "Bad configuration option: "),
        "ssh does not start: it refuses its own configuration[[file? {file}]][[owner?, which another user owns or may write]][[option?: it does not "
        "know the option {option}]].",
        "[[owner?chown it to the user of the ranks, and chmod 600 {file}||Remove that line, or put IgnoreUnknown NAME above it: "
        "an older ssh knows fewer options]].",
        r"(?P<owner>Bad owner) or permissions on (?P<file>\S+)|(?:(?P<file2>/\S+): )?(?:line \d+: )?Bad configuration option: (?P<option>\S+)"
        r"|(?P<file3>/\S+): terminating, \d+ bad configuration options",
    ),
    Signature(
        "ssh-no-user",
        ("No user exists for uid ",),
        "ssh does not start where mpirun runs: the user ID {uid} has no user name there. This happens in a container that runs as a user of "
        "its host.",
        "Give it one: mount /etc/passwd and /etc/group read-only, add the user in the image, or run the container as root.",
        r"No user exists for uid (?P<uid>\d+)",
    ),
    Signature(
        "sshd-not-started",
        ("no hostkeys available", "Missing privilege separation directory", "Cannot bind any address"),
        "The sshd of {host} does not start: {why}.",
        "If host keys are missing: ssh-keygen -A. If the folder is missing: mkdir -p /run/sshd. If the port is in use, ss -ltnp shows by what; sshd -p 2222 uses another port. Then "
        "/usr/sbin/sshd -t on that host shows any remaining error.",
        r"(?P<why>no hostkeys available|Missing privilege separation directory: \S*[^\s.]|Cannot bind any address)",
    ),
    Signature(
        "ssh-broken",
        ("ssh_dispatch_run_fatal: ",),
        "The ssh connection to {host} broke in the middle: {why}.",
        "Something in between changes or drops packets. Use the same MTU on all hosts and switches (test an MTU of "
        "9000 with ping -M do -s 8972 {host}), and make sure that no two hosts have the same address. If the cipher is the cause: plm_rsh_args '-c aes128-ctr'.",
        r"ssh_dispatch_run_fatal: Connection to (?P<host>\S+) port \d+: (?P<why>[^\r\n]*[^\s.])",
    ),
    Signature(
        "pdsh-failed",
        ("pdsh@",),
        "pdsh could not run its command on {host}: {why}.",
        "Try by hand: ssh {host} true. PDSH_RCMD_TYPE=ssh makes pdsh use ssh; taco-launch needs no pdsh.",
        r"pdsh@[^\s:]+: (?P<host>[^\s:]+): (?P<why>ssh exited with exit code 255|mcmd: [^\r\n]*[^\s.]|rcmd: [^\r\n]*[^\s.])",
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
