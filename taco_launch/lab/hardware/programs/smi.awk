# Simulated hardware: what nvidia-smi knows, read from the state. One rule reads, END answers `mode`.
# gpu[FOLDER, FACT]; shown[1..count] are the folders of the GPUs that are there, in order; number[FOLDER] is the index.
FILENAME ~ /\/gpu\/[0-9]+\/[^\/]+$/ {
    parts = split(FILENAME, part, "/")
    gpu[part[parts - 1], part[parts]] = $0
    if (part[parts] == "state" && $0 != "gone") folders[part[parts - 1] + 0]
}

FILENAME ~ /\/process\/[0-9]+$/ {
    parts = split(FILENAME, part, "/")
    pids[++processes] = part[parts]
    where[part[parts]] = $1
    mib[part[parts]] = $2
    title[part[parts]] = $0
    sub(/^[^ ]+ +[^ ]+ +/, "", title[part[parts]])
    taken[$1] += $2
}

FILENAME ~ /\/hca\/[^\/]+\/path$/ {
    parts = split(FILENAME, part, "/")
    hcas[++nics] = part[parts - 1]
    place["NIC" nics] = $0
}

FILENAME ~ /\/hca\/[^\/]+\/numa$/ { numa["NIC" nics] = $0 }

FILENAME ~ /\/cpulist$/ {
    parts = split(FILENAME, part, "/")
    cpulist[substr(part[parts - 1], 5)] = $0
}

# The CUDA release of each driver branch, as NVIDIA's release notes pair them.
function cuda() {
    if (major >= 580) return "13.0"
    if (major >= 570) return "12.8"
    if (major >= 550) return "12.4"
    if (major >= 545) return "12.3"
    if (major >= 535) return "12.2"
    if (major >= 525) return "12.0"
    if (major >= 515) return "11.7"
    if (major >= 510) return "11.6"
    if (major >= 470) return "11.4"
    return "11.2"
}

# The bus id in the form of nvidia-smi, whose domain has eight digits.
function bus(folder,    parts, part) {
    parts = split(gpu[folder, "path"], part, "/")
    return "0000" toupper(part[parts])
}

function used(folder) { return gpu[folder, "memory-used"] + taken[folder] }

# Those asked for with -i, by index, UUID or bus id; all without it.
function chosen(folder,    text) {
    text = toupper(only)
    return only == "" || only == number[folder] "" || only == gpu[folder, "uuid"] || \
        text == bus(folder) || text == substr(bus(folder), 5)
}

END {
    if (mode == "cuda") { print cuda(); exit }
    all = 0
    for (folder = 0; folder < 64; folder++) {
        if (!(folder in folders)) continue
        number[folder] = all++
        place["GPU" all] = gpu[folder, "path"]
        numa["GPU" all] = gpu[folder, "numa"]
        slot[all] = folder
        if (gpu[folder, "state"] == "lost") {
            print "Unable to determine the device handle for GPU " substr(bus(folder), 5) \
                ": GPU is lost.  Reboot the system to recover this GPU"
            print ""
            exit 15
        }
        if (chosen(folder)) shown[++count] = folder
    }
    if (!count) { print "No devices were found"; exit 6 }
    if (mode == "list") list()
    if (mode == "query") exit query()
    if (mode == "apps") exit apps()
    if (mode == "remapped") exit remapped()
    if (mode == "table") summary()
    if (mode == "matrix") matrix()
    if (mode == "p2p") p2p()
    if (mode == "status" || mode == "errors") nvlinks()
    if (mode == "xml") xml()
}

function line(folder) {
    return "GPU " number[folder] ": " gpu[folder, "name"] " (UUID: " gpu[folder, "uuid"] ")"
}

function list(    i) {
    for (i = 1; i <= count; i++) print line(shown[i])
}

function nvlinks(    i, link, folder, links, peers, up, j) {
    for (i = 1; i <= count; i++) {
        folder = shown[i]
        print line(folder)
        if (!gpu[folder, "nvlink-count"]) {
            if (major >= 515) print "Device does not have or support Nvlink"
            continue
        }
        # Over NVSwitches all links stay up; in a mesh those to a GPU that is gone do not.
        split(gpu[folder, "nvlinks"], peers, " ")
        up = peers[folder == 0 ? 2 : 1] == gpu[folder, "nvlink-count"] ? gpu[folder, "nvlink-count"] : 0
        if (!up) for (j = 1; j <= all; j++) up += peers[slot[j] + 1]
        for (link = 0; link < gpu[folder, "nvlink-count"]; link++)
            if (mode == "errors") {
                print "\t Link " link ": Replay Errors: 0"
                print "\t Link " link ": Recovery Errors: 0"
                print "\t Link " link ": CRC Errors: " (link ? 0 : gpu[folder, "nvlink-errors"])
            } else {
                print "\t Link " link ": " (link < up - gpu[folder, "nvlink-down"] ? gpu[folder, "nvlink-speed"] " GB/s" : "<inactive>")
            }
    }
}
