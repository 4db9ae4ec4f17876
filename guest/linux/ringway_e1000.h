/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A driver of the 82540EM for virtual machines.
 *
 * main.c	PCI function and network device; rings are made, exchanged, freed
 * hardware.c	registers: reset, addresses, filters, link, statistics
 * transmit.c	the transmit ring
 * receive.c	the receive ring, XDP
 * poll.c	interrupts, polls, moderation
 * ethtool.c	what ethtool shows and sets
 * handover.h	send combining
 * csb.h	the status block
 */
#ifndef RINGWAY_E1000_H
#define RINGWAY_E1000_H

#include <linux/bitfield.h>
#include <linux/bpf.h>
#include <linux/if_vlan.h>
#include <linux/io.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include <linux/skbuff.h>
#include <linux/u64_stats_sync.h>
#include <linux/workqueue.h>
#include <net/xdp.h>

#include "compat.h"
#include "registers.h"
#include "csb.h"
#include "handover.h"

/* Subsystem of a device that offers a status block. */
#define RW_SUBSYSTEM_CSB	0x1101

#define RW_RING_LEAST		128
#define RW_RING_MOST		4096
#define RW_RING_DEFAULT		256
#define RW_MTU_MOST		9000
/* Least time between interrupts under load. */
#define RW_USECS_DEFAULT	125
/* Frames per second from which on the driver combines tail writes. */
#define RW_COMBINE_RATE		10000
/* Most bytes of a transmit descriptor; the manual allows 16,288. */
#define RW_TX_PIECE		16128
/*
 * Most descriptors of a frame: a context, the head, the fragments, and the cuts
 * of what is longer than a piece.
 */
#define RW_TX_FRAME		(MAX_SKB_FRAGS + 2 + GSO_LEGACY_MAX_SIZE / RW_TX_PIECE + 1)
/* Bytes that the device may write into a buffer. */
#define RW_RX_BUFFER		2048
/* The longest frame of a short buffer: with a tag and the frame check sequence. */
#define RW_RX_SHORT		(ETH_DATA_LEN + ETH_HLEN + VLAN_HLEN + ETH_FCS_LEN)
/* Frames up to this length are copied, and their buffer stays in the ring. */
#define RW_RX_COPY		256

/* What a transmit descriptor's buffer is. */
enum rw_tx_kind {
	RW_TX_NOTHING,		/* a context */
	RW_TX_SINGLE,		/* mapped by dma_map_single */
	RW_TX_PAGE,		/* mapped by skb_frag_dma_map */
	RW_TX_POOL,		/* of the receive ring's page pool */
};

/* Who owns a sent frame. In the buffer of its last descriptor. */
enum rw_tx_owner {
	RW_TX_NOBODY,
	RW_TX_SKB,
	RW_TX_XDP,
};

struct rw_tx_buffer {
	dma_addr_t dma;
	u32 length;
	u8 kind;		/* enum rw_tx_kind */
	u8 owner;		/* enum rw_tx_owner */
	/* Of a frame's first descriptor. */
	u16 last;		/* its last descriptor */
	union {
		struct sk_buff *skb;
		struct xdp_frame *xdp;
	};
};

struct rw_tx_counts {
	u64_stats_t packets;
	u64_stats_t bytes;
	u64_stats_t tail_writes;
	u64_stats_t stops;	/* the ring was full */
	u64_stats_t errors;	/* no DMA mapping */
	u64_stats_t xdp;
	struct u64_stats_sync sync;
};

/* The transmit ring. Behind the lock of the transmit queue. */
struct rw_tx {
	struct tx_descriptor *ring;
	struct rw_tx_buffer *buffers;
	u32 count;		/* a power of two */
	u32 clean;		/* the first descriptor that is not reclaimed */
	struct handover handover;
	/* With a status block. */
	u32 asked;		/* the device interrupts when it is here; CSB_NEVER */
	u32 waited;		/* end of the last frame that somebody waits for */
	bool has_waiter;
	bool stopped;		/* the ring was full */
	bool open;		/* frames may come, also those of XDP */
	/* The last context for checksums. */
	u64 context[2];
	dma_addr_t dma;
};

struct rw_rx_buffer {
	struct page *page;
	u8 *data;		/* where the device writes */
	dma_addr_t dma;		/* the same for the device */
	bool sync;		/* the memory has to be handed over */
};

struct rw_rx_counts {
	u64_stats_t packets;
	u64_stats_t bytes;
	u64_stats_t copied;
	u64_stats_t errors;	/* marked by the device */
	u64_stats_t bad;	/* descriptors that a device must not write */
	u64_stats_t no_memory;
	u64_stats_t tail_writes;
	u64_stats_t xdp_dropped;
	u64_stats_t xdp_sent;
	u64_stats_t xdp_redirected;
	struct u64_stats_sync sync;
};

/* The receive ring. Only polls touch it. */
struct rw_rx {
	struct rx_descriptor *ring;
	struct rw_rx_buffer *buffers;
	u32 count;		/* a power of two */
	u32 next;		/* the next descriptor of the device */
	u32 filled;		/* the first descriptor without a new buffer */
	u32 tail;		/* what the device knows of filled */
	u32 doubted;		/* next when the device was elsewhere; -1 */
	u32 headroom;
	u32 longest;		/* most bytes that the device may write into a buffer */
	u32 truesize;		/* bytes of a page that a buffer takes */
	enum dma_data_direction direction;
	struct sk_buff *skb;	/* a frame whose end has not come */
	bool skip;		/* the rest of a frame is dropped */
	bool careful;		/* frames do not just go to the stack */
	bool changed;		/* used descriptors may need buffers */
	struct bpf_prog *xdp;
	struct page_pool *pool;
	dma_addr_t dma;
	struct xdp_rxq_info info;
};

/* What can be exchanged while the device runs. */
struct rw_setup {
	u32 tx_count;
	u32 rx_count;
	u32 mtu;
	struct bpf_prog *xdp;
};

struct rw_moderation {
	u32 usecs;		/* least time between interrupts */
	bool adaptive;		/* only under load */
	bool busy;
	u32 now;		/* the register */
	/* The window that is judged next: when it began, and what came. */
	u32 window;
	u32 polls;
	u32 received;
	u64 sent;
};

enum rw_flag {
	RW_STARTED,		/* the device runs */
	RW_SUSPENDED,		/* the device was stopped by suspend() */
	RW_TOLD,		/* the device's misuse has been reported */
};

struct rw_nic {
	void __iomem *registers;
	struct csb *csb;	/* the status block, if it is used */
	struct net_device *dev;
	u32 causes;		/* that the device interrupts for */
	struct napi_struct napi;
	struct rw_tx *tx;
	struct rw_rx *rx;
	struct rw_tx_counts tx_counts;
	struct rw_rx_counts rx_counts;

	struct rw_moderation moderation;
	u64 interrupts;
	u64 polls;
	u64 misuses;
	u64 resets;

	struct pci_dev *pci;
	struct rw_setup setup;
	struct csb *block;	/* memory for the status block */
	dma_addr_t block_dma;
	bool csb_wanted;
	u32 soon_again;		/* resets with a status block in a row */
	unsigned long flags;
	unsigned long last_reset;	/* jiffies */
	struct timer_list reaper;	/* frees sent frames that nobody waits for */
	struct timer_list watch;	/* looks where the device receives */
	struct work_struct link_work;
	struct delayed_work reset_work;
	unsigned long vlans[BITS_TO_LONGS(VLAN_N_VID)];
	/* What the registers of filters have. */
	u32 groups[MTA_WORDS];
	u64 addresses[RA_COUNT];
	/* What the device has counted, as it forgets what is read. */
	struct mutex device_counts_lock;
	u64 device_counts[6];
};

static inline u32 rw_read(const struct rw_nic *nic, u32 reg)
{
	return readl(nic->registers + reg);
}

/* All earlier writes to memory are visible to the device before. */
static inline void rw_write(struct rw_nic *nic, u32 reg, u32 value)
{
	writel(value, nic->registers + reg);
}

/* Every register of a device that is gone reads as ones. */
static inline bool rw_is_gone(const struct rw_nic *nic)
{
	return rw_read(nic, REG_STATUS) == ~0u;
}

/* main.c */
/* Parameter combine: enum handover_mode. */
extern u32 rw_combine;
int rw_exchange(struct rw_nic *nic, const struct rw_setup *setup);
__printf(2, 3) void rw_misuse(struct rw_nic *nic, const char *format, ...);

/* hardware.c */
extern const char *const rw_device_count_names[];
int rw_hw_reset(struct rw_nic *nic);
int rw_hw_address(struct rw_nic *nic, u8 *address);
void rw_hw_start(struct rw_nic *nic);
void rw_hw_stop(struct rw_nic *nic);
void rw_hw_set_address(struct rw_nic *nic);
void rw_hw_set_filters(struct rw_nic *nic);
void rw_hw_set_vlans(struct rw_nic *nic, int word);
void rw_hw_set_features(struct rw_nic *nic);
bool rw_hw_link(struct rw_nic *nic);
void rw_hw_count(struct rw_nic *nic);
int rw_phy(struct rw_nic *nic, u32 command, u32 reg, u16 *value);

/* transmit.c */
struct rw_tx *rw_tx_make(struct rw_nic *nic, u32 count);
void rw_tx_free(struct rw_nic *nic, struct rw_tx *tx);
void rw_tx_begin(struct rw_nic *nic);
void rw_tx_open(struct rw_nic *nic, bool open);
void rw_tx_drop(struct rw_nic *nic);
netdev_tx_t rw_start_xmit(struct sk_buff *skb, struct net_device *dev);
int rw_xdp_xmit(struct net_device *dev, int n, struct xdp_frame **frames, u32 flags);
bool rw_tx_back(struct rw_nic *nic, struct xdp_buff *xdp);
/*
 * Whether a poll has nothing to do with the transmit ring. With a status block
 * nothing waits for a poll to be announced, and a frame that comes meanwhile
 * settles what it needs.
 */
static inline bool rw_tx_is_idle(const struct rw_nic *nic)
{
	const struct rw_tx *tx = nic->tx;

	return nic->csb && READ_ONCE(tx->clean) == READ_ONCE(tx->handover.filled);
}

void rw_tx_poll(struct rw_nic *nic, int budget);
void rw_tx_polled(struct rw_nic *nic, bool received);
void rw_tx_netpoll(struct rw_nic *nic);
netdev_features_t rw_features_check(struct sk_buff *skb, struct net_device *dev,
				    netdev_features_t features);

/* receive.c */
struct rw_rx *rw_rx_make(struct rw_nic *nic, const struct rw_setup *setup);
void rw_rx_free(struct rw_nic *nic, struct rw_rx *rx);
int rw_rx_begin(struct rw_nic *nic);
void rw_rx_drop(struct rw_nic *nic);
void rw_rx_give(struct rw_nic *nic);
int rw_rx_poll(struct rw_nic *nic, int budget);
bool rw_rx_is_ready(const struct rw_nic *nic);
unsigned long rw_rx_watch(struct rw_nic *nic);

/* poll.c */
irqreturn_t rw_interrupt(int irq, void *data);
int rw_poll(struct napi_struct *napi, int budget);
void rw_poll_now(struct rw_nic *nic);
void rw_reap(struct timer_list *timer);
void rw_watch(struct timer_list *timer);
void rw_moderate(struct rw_nic *nic);
u32 rw_moderation_register(const struct rw_moderation *moderation);

/* ethtool.c */
extern const struct ethtool_ops rw_ethtool_ops;

#endif
