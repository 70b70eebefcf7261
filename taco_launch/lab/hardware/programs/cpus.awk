# Simulated hardware: a list of CPUs (0-3,8) in; out: the half of NUMA node `node`, or with `mask` the list's bits in
# hexadecimal, as a cpumap has them.
{
    for (field = 1; field <= NF; field++) {
        ends = split($field, range, "-")
        if ($field == "") continue
        for (cpu = range[1] + 0; cpu <= range[ends] + 0; cpu++) cpus[count++] = cpu
    }
}

END {
    if (mask) {
        top = count ? cpus[count - 1] : 0
        for (word = int(top / 32); word >= 0; word--) {
            bits = 0
            for (i = 0; i < count; i++) if (int(cpus[i] / 32) == word) bits += 2 ^ (cpus[i] % 32)
            # mawk's %x ends at 31 bits
            text = text (text == "" ? "" : ",") sprintf("%04x%04x", int(bits / 65536), bits % 65536)
        }
        print text
        exit
    }
    half = int((count + 1) / 2)
    from = node == 0 ? 0 : half
    to = node == 0 ? half : count
    for (i = from; i < to; i++) {
        last = i
        while (last + 1 < to && cpus[last + 1] == cpus[last] + 1) last++
        text = text (text == "" ? "" : ",") cpus[i] (last > i ? "-" cpus[last] : "")
        i = last
    }
    print text
}
