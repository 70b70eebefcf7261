"""Parse what the probe printed on a host, one parser for each subject, and summarise it."""

# What can be asked of a host, in the order in which it is shown; each is a field of HostFacts.
SUBJECTS = ("system", "network", "docker", "gpu", "topology", "rdma", "image")
# What is asked besides by set-up alone: what it left on a host.
MADE = "made"
# What only a health check asks for; it takes at least 3 seconds.
HEALTH = "health"
