"""What a host is: the probe that looks, and a parser for each subject; pure, part of the agent."""

# What can be asked of a host, in the order in which it is shown; each is a field of HostFacts.
SUBJECTS = ("system", "network", "docker", "gpu", "topology", "rdma", "image")
# What is asked besides by set-up alone: what it left on a host.
MADE = "made"
