# Simulated hardware: --query-gpu and --query-compute-apps of nvidia-smi.
function query(    names, wanted, i, j, text, row, words) {
    while ((getline text < table) > 0) {
        if (text ~ /^#/) continue
        split(text, words, " ")
        if (words[4] > major + 0) continue
        canonical[words[1]] = words[1]
        if (words[2] != "-" && !(words[2] in canonical)) canonical[words[2]] = words[1]
        unit[words[1]] = words[3] == "-" ? "" : words[3]
        value[words[1]] = words[5]
    }
    wanted = split(asked, names, ",")
    for (i = 1; i <= wanted; i++) {
        gsub(/^ +| +$/, "", names[i])
        if (!(names[i] in canonical)) {
            print "Field \"" names[i] "\" is not a valid field to query."
            print ""
            return 2
        }
        names[i] = canonical[names[i]]
        row = row (i > 1 ? ", " : "") names[i] (unit[names[i]] == "" ? "" : " [" unit[names[i]] "]")
    }
    if (!has("noheader")) print row
    for (j = 1; j <= count; j++) {
        row = ""
        for (i = 1; i <= wanted; i++) row = row (i > 1 ? ", " : "") measured(names[i], shown[j])
        print row
    }
    return 0
}

function has(word) { return index("," format ",", "," word ",") > 0 }

function measured(name, folder,    text) {
    text = value[name]
    if (name == "utilization.gpu" && match(" " busy, " " gpu[folder, "uuid"] " [0-9]+"))
        text = substr(busy, RSTART + length(gpu[folder, "uuid"]) + 1, RLENGTH - length(gpu[folder, "uuid"]) - 2)
    if (text ~ /^@/) text = gpu[folder, substr(text, 2)]
    else if (text ~ /^![0-9]/) text = reason(gpu[folder, "event-reasons"], substr(text, 2) + 0)
    else if (text == "!") text = computed(name, folder)
    else gsub("_", " ", text)
    if (text == "N/A") text = "[N/A]"
    if (unit[name] == "" || text == "[N/A]") return text
    if (unit[name] == "W") text = sprintf("%.2f", text)
    return has("nounits") ? text : text " " unit[name]
}

# One bit of the mask of reasons for lower clocks; its last four digits hold all that are known.
function reason(mask, bit,    digits, i, sum) {
    digits = tolower(substr(mask, length(mask) - 3))
    for (i = 1; i <= 4; i++) sum = sum * 16 + index("0123456789abcdef", substr(digits, i, 1)) - 1
    return int(sum / bit) % 2 ? "Active" : "Not Active"
}

function computed(name, folder) {
    if (name == "timestamp") return now
    if (name == "driver_version") return driver
    if (name == "count") return all
    if (name == "index") return number[folder]
    if (name == "pci.bus_id") return bus(folder)
    if (name == "pci.bus") return "0x" substr(bus(folder), 10, 2)
    if (name == "memory.used") return used(folder)
    return gpu[folder, "memory"] - used(folder)
}

function apps(    names, wanted, known, i, j, row, folder, k) {
    known["timestamp"] = "timestamp"; known["gpu_name"] = "gpu_name"; known["gpu_bus_id"] = "gpu_bus_id"
    known["gpu_serial"] = "gpu_serial"; known["gpu_uuid"] = "gpu_uuid"; known["pid"] = "pid"
    known["process_name"] = known["name"] = "process_name"
    known["used_gpu_memory"] = known["used_memory"] = "used_gpu_memory"
    wanted = split(asked, names, ",")
    for (i = 1; i <= wanted; i++) {
        gsub(/^ +| +$/, "", names[i])
        if (!(names[i] in known)) {
            print "Field \"" names[i] "\" is not a valid field to query."
            print ""
            return 2
        }
        names[i] = known[names[i]]
        row = row (i > 1 ? ", " : "") names[i] (names[i] == "used_gpu_memory" ? " [MiB]" : "")
    }
    if (!has("noheader")) print row
    for (k = 1; k <= count; k++) {
        folder = shown[k]
        for (j = 1; j <= processes; j++) {
            if (where[pids[j]] != folder) continue
            row = ""
            for (i = 1; i <= wanted; i++) row = row (i > 1 ? ", " : "") of_process(names[i], pids[j], folder)
            print row
        }
    }
    return 0
}

function remapped(    names, wanted, known, i, j, row, text) {
    known["timestamp"] = "timestamp"; known["gpu_name"] = "gpu_name"; known["gpu_bus_id"] = "gpu_bus_id"
    known["gpu_serial"] = "gpu_serial"; known["gpu_uuid"] = "gpu_uuid"
    known["remapped_rows.correctable"] = "0"; known["remapped_rows.uncorrectable"] = "remapped-rows"
    known["remapped_rows.pending"] = "remapped-pending"; known["remapped_rows.failure"] = "remapped-failure"
    wanted = split(asked, names, ",")
    for (i = 1; i <= wanted; i++) {
        gsub(/^ +| +$/, "", names[i])
        if (!(names[i] in known)) {
            print "Field \"" names[i] "\" is not a valid field to query."
            print ""
            return 2
        }
        row = row (i > 1 ? ", " : "") names[i]
    }
    if (!has("noheader")) print row
    for (j = 1; j <= count; j++) {
        row = ""
        for (i = 1; i <= wanted; i++) {
            text = known[names[i]]
            if (text ~ /^remapped-/) text = gpu[shown[j], text]
            else if (text == "0") text = gpu[shown[j], "remapped-rows"] == "N/A" ? "N/A" : text
            else text = of_process(text, "", shown[j])
            row = row (i > 1 ? ", " : "") (text == "N/A" ? "[N/A]" : text)
        }
        print row
    }
    return 0
}

function of_process(name, pid, folder) {
    if (name == "timestamp") return now
    if (name == "gpu_name") return gpu[folder, "name"]
    if (name == "gpu_bus_id") return bus(folder)
    if (name == "gpu_serial") return "[N/A]"
    if (name == "gpu_uuid") return gpu[folder, "uuid"]
    if (name == "pid") return pid
    if (name == "process_name") return title[pid]
    return mib[pid] (has("nounits") ? "" : " MiB")
}
