/* The structures and numbers of netmap's interface that the tests' programs use: API 14, x86-64 and other 64-bit machines. */
#ifndef NETMAP_ABI_H
#define NETMAP_ABI_H

#include <stdint.h>
#include <sys/ioctl.h>

struct nm_slot {
    uint32_t buf_idx;
    uint16_t len;
    uint16_t flags;
    uint64_t ptr;
};

enum { SLOT_CHANGED = 0x01, SLOT_REPORT = 0x02, SLOT_NO_LEARN = 0x08, SLOT_INDIRECT = 0x10, SLOT_MORE = 0x20 };

struct nm_ring {
    int64_t buf_ofs;
    uint32_t num_slots;
    uint32_t buf_size;
    uint16_t id;
    uint16_t dir;
    uint32_t head;
    uint32_t cur;
    uint32_t tail;
    uint32_t flags;
    uint32_t unused;
    int64_t seconds;
    int64_t microseconds;
    uint8_t scratch[128 - 56];
    uint8_t sem[128];
    struct nm_slot slots[];
};

struct nm_if {
    char name[16];
    uint32_t version;
    uint32_t flags;
    uint32_t tx_rings;
    uint32_t rx_rings;
    uint32_t bufs_head;
    uint32_t host_tx_rings;
    uint32_t host_rx_rings;
    uint32_t spare[3];
    int64_t ring_ofs[];
};

struct nm_header {
    uint16_t version;
    uint16_t kind;
    uint32_t reserved;
    char name[64];
    uint64_t options;
    uint64_t body;
};

struct nm_option {
    uint64_t next;
    uint32_t kind;
    uint32_t status;
    uint64_t size;
};

struct nm_register {
    uint64_t offset;
    uint64_t memsize;
    uint32_t tx_slots, rx_slots;
    uint16_t tx_rings, rx_rings, host_tx_rings, host_rx_rings;
    uint16_t mem_id, ring_id;
    uint32_t mode;
    uint32_t extra_bufs;
    uint32_t pad;
    uint64_t flags;
};

struct nm_port_info {
    uint64_t memsize;
    uint32_t tx_slots, rx_slots;
    uint16_t tx_rings, rx_rings, host_tx_rings, host_rx_rings;
    uint16_t mem_id, pad[3];
};

struct nm_list {
    uint16_t bridge, pad;
    uint32_t port;
};

struct nm_port_header {
    uint32_t len, pad;
};

struct nm_legacy {
    char name[16];
    uint32_t version, offset, memsize, tx_slots, rx_slots;
    uint16_t tx_rings, rx_rings, ring_id, cmd, arg1, arg2;
    uint32_t arg3, flags, spare;
};

enum {
    REQ_REGISTER = 1,
    REQ_PORT_INFO = 2,
    REQ_ATTACH = 3,
    REQ_DETACH = 4,
    REQ_LIST = 5,
    REQ_HDR_SET = 6,
    REQ_HDR_GET = 7,
    REQ_NEWIF = 8,
    REQ_DELIF = 9,
    REQ_POLLING_ON = 10,
    REQ_POLLING_OFF = 11,
    REQ_POOLS_INFO = 12,
    REQ_KLOOP_START = 13,
    REQ_KLOOP_STOP = 14,
    REQ_CSB_ENABLE = 15,
};

enum { MODE_ALL = 1, MODE_HOST = 2, MODE_ALL_AND_HOST = 3, MODE_ONE = 4, MODE_PIPE_MASTER = 5, MODE_NULL = 7, MODE_ONE_HOST = 8 };

enum {
    REG_MONITOR_TX = 0x100,
    REG_MONITOR_RX = 0x200,
    REG_MONITOR_COPYLESS = 0x400,
    REG_EXCLUSIVE = 0x800,
    REG_RX_ONLY = 0x2000,
    REG_TX_ONLY = 0x4000,
    REG_DO_RX_POLL = 0x10000,
    REG_NO_TX_POLL = 0x20000,
};

#define NM_INFO _IOWR('i', 145, struct nm_legacy)
#define NM_REGIF _IOWR('i', 146, struct nm_legacy)
#define NM_TXSYNC _IO('i', 148)
#define NM_RXSYNC _IO('i', 149)
#define NM_CONTROL _IOWR('i', 151, struct nm_header)

#endif
