# Simulated hardware: `nvidia-smi -q -x`, the core of it.
function tag(depth, name, text) {
    gsub(/&/, "\\&amp;", text)
    gsub(/</, "\\&lt;", text)
    print repeat("\t", depth) "<" name ">" text "</" name ">"
}

function open(depth, name) { print repeat("\t", depth) "<" name ">" }

function xml(    i, folder, j) {
    print "<?xml version=\"1.0\" ?>"
    print "<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v" (major >= 530 ? 12 : 11) ".dtd\">"
    open(0, "nvidia_smi_log")
    tag(1, "timestamp", today)
    tag(1, "driver_version", driver)
    tag(1, "cuda_version", cuda())
    tag(1, "attached_gpus", all)
    for (i = 1; i <= count; i++) {
        folder = shown[i]
        print "\t<gpu id=\"" bus(folder) "\">"
        tag(2, "product_name", gpu[folder, "name"])
        tag(2, "product_brand", gpu[folder, "product"])
        tag(2, "persistence_mode", gpu[folder, "persistence"])
        open(2, "mig_mode")
        tag(3, "current_mig", gpu[folder, "mig"])
        tag(3, "pending_mig", gpu[folder, "mig"])
        open(2, "/mig_mode")
        tag(2, "serial", "N/A")
        tag(2, "uuid", gpu[folder, "uuid"])
        tag(2, "minor_number", number[folder])
        tag(2, "vbios_version", gpu[folder, "vbios"])
        open(2, "pci")
        tag(3, "pci_bus", substr(bus(folder), 10, 2))
        tag(3, "pci_device", "00")
        tag(3, "pci_domain", "0000")
        tag(3, "pci_device_id", substr(gpu[folder, "device-id"], 3))
        tag(3, "pci_bus_id", bus(folder))
        tag(3, "pci_sub_system_id", substr(gpu[folder, "subsystem"], 3))
        open(3, "pci_gpu_link_info")
        open(4, "pcie_gen")
        tag(5, "max_link_gen", gpu[folder, "link-gen-max"])
        tag(5, "current_link_gen", gpu[folder, "link-gen"])
        open(4, "/pcie_gen")
        open(4, "link_widths")
        tag(5, "max_link_width", gpu[folder, "link-width-max"] "x")
        tag(5, "current_link_width", gpu[folder, "link-width"] "x")
        open(4, "/link_widths")
        open(3, "/pci_gpu_link_info")
        open(2, "/pci")
        tag(2, "performance_state", "P0")
        open(2, "fb_memory_usage")
        tag(3, "total", gpu[folder, "memory"] " MiB")
        tag(3, "used", used(folder) " MiB")
        tag(3, "free", (gpu[folder, "memory"] - used(folder)) " MiB")
        open(2, "/fb_memory_usage")
        tag(2, "compute_mode", gpu[folder, "compute-mode"])
        open(2, "utilization")
        tag(3, "gpu_util", gpu[folder, "utilization"] " %")
        open(2, "/utilization")
        open(2, "temperature")
        tag(3, "gpu_temp", gpu[folder, "temperature"] " C")
        open(2, "/temperature")
        open(2, "processes")
        for (j = 1; j <= processes; j++) {
            if (where[pids[j]] != folder) continue
            open(3, "process_info")
            tag(4, "pid", pids[j])
            tag(4, "type", "C")
            tag(4, "process_name", title[pids[j]])
            tag(4, "used_memory", mib[pids[j]] " MiB")
            open(3, "/process_info")
        }
        open(2, "/processes")
        open(1, "/gpu")
    }
    open(0, "/nvidia_smi_log")
}
