#!/bin/busybox sh
# The guest's only program: loads drivers, then runs the commands that come on a virtio port (a serial line loses
# interrupts under emulation). An answer is the command's output, a zero byte, and a line "NUMBER STATUS".
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/ LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t debugfs debug /sys/kernel/debug
while read -r module; do
    case $module in
    # Not loaded here. A test with VLANs runs: for m in llc stp garp mrp 8021q; do insmod /modules/$m.ko; done.
    llc | stp | garp | mrp | 8021q | pktgen | netconsole | configfs | sch_netem | tun | veth | uio* | vfio* | irqbypass) continue ;;
    # These load slowly, so they are loaded only if the NIC exists.
    8139cp | mii) grep -q 0x8139 /sys/bus/pci/devices/*/device || continue ;;
    ringway_e1000)
        grep -q 0x100e /sys/bus/pci/devices/*/device || continue
        for device in $([ -e /modules/own-all ] && grep -l 0x100e /sys/bus/pci/devices/*/device); do
            echo ringway_e1000 >"${device%/*}/driver_override"
        done
        insmod /modules/ringway_e1000.ko $(cat /modules/own-parameters)
        continue
        ;;
    e1000) grep -q 0x100e /sys/bus/pci/devices/*/device || continue ;;
    e1000e) grep -q 0x10d3 /sys/bus/pci/devices/*/device || continue ;;
    igb | dca | i2c-algo-bit) grep -q 0x10c9 /sys/bus/pci/devices/*/device || continue ;;
    esac
    insmod "/modules/$module.ko"
done </modules/order
ip link set lo up
exec <>/dev/vport0p1 >&0
printf '\0ready\n'
while read -r number command; do
    # Starts no program of its own: each would take 10 ms under emulation.
    (eval "$command") </dev/null 2>&1
    printf '\0%s %s\n' "$number" "$?"
done
