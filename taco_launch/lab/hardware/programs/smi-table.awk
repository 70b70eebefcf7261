# Simulated hardware: nvidia-smi without arguments. The first column is 31 wide up to driver 525, 41 after it.
function repeat(text, times,    all) {
    while (times-- > 0) all = all text
    return all
}

function summary(    wide, first, whole, i, folder, mig) {
    wide = major >= 530
    first = wide ? 41 : 31
    whole = first + 46
    print today "       "
    print "+" repeat("-", whole) "+"
    printf wide ? \
        "| NVIDIA-SMI %-23sDriver Version: %-13sCUDA Version: %-9s|\n" : \
        "| NVIDIA-SMI %-13sDriver Version: %-13sCUDA Version: %-9s|\n", driver, driver, cuda()
    print "|" repeat("-", first) "+" repeat("-", 22) "+" repeat("-", 22) "+"
    print wide ? \
        "| GPU  Name                 Persistence-M | Bus-Id        Disp.A | Volatile Uncorr. ECC |" : \
        "| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |"
    print wide ? \
        "| Fan  Temp   Perf          Pwr:Usage/Cap |         Memory-Usage | GPU-Util  Compute M. |" : \
        "| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |"
    print "|" repeat(" ", first) "|" repeat(" ", 22) "|               MIG M. |"
    print "|" repeat("=", first) "+" repeat("=", 22) "+" repeat("=", 22) "|"
    for (i = 1; i <= count; i++) {
        folder = shown[i]
        printf wide ? \
            "| %3d  %-28s%5s  " : \
            "| %3d  %-18s  %-4s ", \
            number[folder], cut(gpu[folder, "name"], wide ? 28 : 18), \
            gpu[folder, "persistence"] == "Enabled" ? "On" : "Off"
        printf "| %s Off | %20s |\n", bus(folder), gpu[folder, "ecc-uncorrected"]
        printf wide ? \
            "| N/A  %3dC  %4s  %14dW / %3dW " : \
            "| N/A  %3dC  %4s  %4dW / %3dW ", \
            gpu[folder, "temperature"], "P0", gpu[folder, "power"], gpu[folder, "power-limit"]
        printf "| %6dMiB / %5dMiB | %6d%%  %11s |\n", \
            used(folder), gpu[folder, "memory"], gpu[folder, "utilization"], compute_mode(gpu[folder, "compute-mode"])
        printf "|%s|%s| %20s |\n", repeat(" ", first), repeat(" ", 22), gpu[folder, "mig"]
        print "+" repeat("-", first) "+" repeat("-", 22) "+" repeat("-", 22) "+"
    }
    print repeat(" ", whole + 2)
    print "+" repeat("-", whole) "+"
    printf "| %-" (whole - 1) "s|\n", "Processes:"
    printf "|  GPU   GI   CI        PID   Type   Process name%sGPU Memory |\n", repeat(" ", wide ? 28 : 18)
    printf "|        ID   ID%sUsage      |\n", repeat(" ", wide ? 61 : 51)
    print "|" repeat("=", whole) "|"
    listed = 0
    for (i = 1; i <= count; i++) processes_of(shown[i], wide)
    if (!listed) printf "| %-" (whole - 1) "s|\n", " No running processes found"
    print "+" repeat("-", whole) "+"
}

function processes_of(folder, wide,    j) {
    for (j = 1; j <= processes; j++) {
        if (where[pids[j]] != folder) continue
        listed++
        printf wide ? \
            "|%5s   N/A  N/A %9s %6s   %-38s %11s |\n" : \
            "|%5s   N/A  N/A %9s %6s   %-28s %11s |\n", \
            number[folder], pids[j], "C", cut(title[pids[j]], wide ? 38 : 28), mib[pids[j]] "MiB"
    }
}

function cut(text, width) {
    return length(text) <= width ? text : substr(text, 1, width - 3) "..."
}

function compute_mode(text) {
    return text == "Exclusive_Process" ? "E. Process" : text
}
