/* A plugin of QEMU's emulator: counts the guest kernel's instructions by the page that they are in.
 *     -plugin instructions.so,counts=FILE
 * FILE is shared memory: one 64-bit count for each page of the top 2 GiB of the address space, where Linux has its kernel and modules.
 * The interface is that of QEMU's qemu-plugin.h, whose header Debian does not ship: what is used here is declared here, as of
 * version 7 of the interface (QEMU 11). */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE_BITS = 12, PAGES = 1 << 19, NO_REGISTERS = 0, VERSION = 7 };
#define BOTTOM 0xffffffff80000000u

struct qemu_info;
struct qemu_plugin_tb;
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t, void (*)(struct qemu_plugin_tb *, void *), void *);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned int, void *), int, void *);

__attribute__((visibility("default"))) int qemu_plugin_version = VERSION;

static uint64_t *counts;

/* What a block adds to its page: both in one word, as the blocks are never freed. */
static void executed(unsigned int processor, void *data) {
    uint64_t block = (uintptr_t)data;
    (void)processor;
    __atomic_fetch_add(&counts[block >> 16], block & 0xffff, __ATOMIC_RELAXED);
}

static void translated(struct qemu_plugin_tb *block, void *data_of_all) {
    uint64_t address = qemu_plugin_tb_vaddr(block);
    (void)data_of_all;
    if (address < BOTTOM)
        return;
    uint64_t data = (address - BOTTOM) >> PAGE_BITS << 16 | qemu_plugin_tb_n_insns(block);
    qemu_plugin_register_vcpu_tb_exec_cb(block, executed, NO_REGISTERS, (void *)(uintptr_t)data);
}

__attribute__((visibility("default"))) int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc, char **argv) {
    size_t size = PAGES * sizeof(*counts);
    (void)info;
    if (argc != 1 || strncmp(argv[0], "counts=", 7) != 0)
        return -1;
    int fd = open(argv[0] + 7, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, size) < 0)
        return -1;
    counts = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (counts == MAP_FAILED)
        return -1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated, NULL);
    return 0;
}
