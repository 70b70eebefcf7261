# Simulated hardware: `nvidia-smi topo`. The distance of two devices is read from their places on the PCI buses.
# As in pciDistance of NCCL 2.4: nothing in common is NODE or SYS, the root complex PHB, all but the last bridge PIX.
function distance(a, b,    one, other, lengths, common, longest) {
    lengths = split(place[a], one, "/")
    longest = split(place[b], other, "/")
    if (lengths > longest) longest = lengths
    while (common < longest && one[common + 1] == other[common + 1]) common++
    if (common == 0) return numa[a] == numa[b] ? "NODE" : "SYS"
    if (common == 1) return "PHB"
    return common >= longest - 2 ? "PIX" : "PXB"
}

function nvlink(i, j,    peers) {
    split(gpu[slot[i], "nvlinks"], peers, " ")
    return peers[slot[j] + 1] + 0
}

function cell(a, b, i, j) {
    if (a == b) return " X "
    if (a ~ /^GPU/ && b ~ /^GPU/ && nvlink(i, j)) return "NV" nvlink(i, j)
    return distance(a, b)
}

function matrix(    devices, names, titles, i, j, header, row, new, index_of) {
    new = major >= 535
    for (i = 1; i <= all; i++) { names[++devices] = "GPU" i; titles[devices] = "GPU" (i - 1); index_of[devices] = i }
    for (i = 1; i <= nics; i++) { names[++devices] = "NIC" i; titles[devices] = new ? "NIC" (i - 1) : hcas[i] }
    for (i = 1; i <= devices; i++) header = header (i > 1 ? "\t" : "") titles[i]
    header = header "\tCPU Affinity\tNUMA Affinity"
    # from 535 on the header is underlined, into a pipe as well
    print new ? "\t\033[4m" header "\tGPU NUMA ID\033[0m" : "\t" header
    for (i = 1; i <= devices; i++) {
        row = titles[i]
        for (j = 1; j <= devices; j++) row = row "\t" cell(names[i], names[j], index_of[i], index_of[j])
        if (i <= all) row = row "\t" cpulist[numa[names[i]]] "\t" numa[names[i]] (new ? "\t\tN/A" : "")
        else row = row (new ? "\t\t\t\t" : "\t\t")
        print row
    }
    print ""
    print "Legend:"
    print ""
    print "  X    = Self"
    print "  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)"
    print "  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node"
    print "  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)"
    print "  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)"
    print "  PIX  = Connection traversing at most a single PCIe bridge"
    print "  NV#  = Connection traversing a bonded set of # NVLinks"
    if (!new || !nics) return
    print ""
    print "NIC Legend:"
    print ""
    for (i = 1; i <= nics; i++) print "  NIC" (i - 1) ": " hcas[i]
    print ""
}

function p2p(    i, j, row, apart) {
    for (j = 1; j <= all; j++) row = row "\tGPU" (j - 1)
    print " " row "\t"
    for (i = 1; i <= all; i++) {
        row = " GPU" (i - 1)
        for (j = 1; j <= all; j++) {
            apart = !nvlink(i, j) && distance("GPU" i, "GPU" j) == "SYS"
            row = row "\t" (i == j ? "X" : apart ? "TNS" : "OK")
        }
        print row "\t"
    }
    print ""
    print "Legend:"
    print ""
    print "  X    = Self"
    print "  OK   = Status Ok"
    print "  CNS  = Chipset not supported"
    print "  GNS  = GPU not supported"
    print "  TNS  = Topology not supported"
    print "  NS   = Not supported"
    print "  U    = Unknown"
}
