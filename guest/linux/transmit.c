// SPDX-License-Identifier: GPL-2.0
/*
 * The transmit ring. The lock of the transmit queue guards all of it: the stack
 * holds it in rw_start_xmit(), and polls take it to reclaim.
 *
 * Who learns that a frame was sent: without a status block the device
 * interrupts for each frame, after a while. With one the driver asks for an
 * interrupt only if somebody waits for it: a stopped queue, a TCP socket with
 * more than one small segment out, or another socket that is half full. What is
 * left is reclaimed by the next frame, by a poll for another reason, or by a
 * lazy timer.
 */
#include <linux/ip.h>
#include <linux/tcp.h>
#include <net/ip6_checksum.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "ringway_e1000.h"

/* A device that sends meanwhile makes new wishes necessary; then the timer is there. */
#define SETTLE_ROUNDS	4
/* Bytes of memory that the smallest two segments of TCP have at least. */
#define TCP_FEW		1536
/* Time after which frames are reclaimed that nobody waits for. */
#define REAP_AFTER	max_t(unsigned long, 2, HZ / 50)

static u32 outstanding(const struct rw_tx *tx)
{
	return (tx->handover.filled - tx->clean) & (tx->count - 1);
}

static u32 room(const struct rw_tx *tx)
{
	return tx->count - 1 - outstanding(tx);
}

static struct netdev_queue *queue_of(const struct rw_nic *nic)
{
	return netdev_get_tx_queue(nic->dev, 0);
}

struct rw_tx *rw_tx_make(struct rw_nic *nic, u32 count)
{
	struct rw_tx *tx = kzalloc(sizeof(*tx), GFP_KERNEL);

	if (!tx)
		return NULL;
	tx->count = count;
	tx->buffers = kvcalloc(count, sizeof(*tx->buffers), GFP_KERNEL);
	tx->ring = dma_alloc_coherent(&nic->pci->dev, count * sizeof(*tx->ring),
				      &tx->dma, GFP_KERNEL);
	if (tx->buffers && tx->ring)
		return tx;
	rw_tx_free(nic, tx);
	return NULL;
}

void rw_tx_free(struct rw_nic *nic, struct rw_tx *tx)
{
	if (!tx)
		return;
	if (tx->ring)
		dma_free_coherent(&nic->pci->dev, tx->count * sizeof(*tx->ring),
				  tx->ring, tx->dma);
	kvfree(tx->buffers);
	kfree(tx);
}

/* Begins with an empty ring, before the device learns of it. */
void rw_tx_begin(struct rw_nic *nic)
{
	struct rw_tx *tx = nic->tx;

	memset(tx->ring, 0, tx->count * sizeof(*tx->ring));
	tx->handover.mode = rw_combine;
	/* Frames in a clock tick. */
	tx->handover.threshold = RW_COMBINE_RATE / HZ;
	tx->clean = 0;
	tx->asked = CSB_NEVER;
	tx->has_waiter = false;
	tx->stopped = false;
	tx->context[0] = 0;
	tx->context[1] = 0;
	handover_begin(&tx->handover, (u32)jiffies);
	netdev_tx_reset_queue(queue_of(nic));
}

/* Lets frames in, when the device has the ring, or keeps them out. */
void rw_tx_open(struct rw_nic *nic, bool open)
{
	struct netdev_queue *queue = queue_of(nic);

	__netif_tx_lock_bh(queue);
	nic->tx->open = open;
	if (open) {
		netif_tx_wake_queue(queue);
	} else {
		/* A poll must not wake it. */
		nic->tx->stopped = false;
		netif_tx_stop_queue(queue);
	}
	__netif_tx_unlock_bh(queue);
}

static void unmap(struct rw_nic *nic, const struct rw_tx_buffer *buffer)
{
	if (buffer->kind == RW_TX_SINGLE)
		dma_unmap_single(&nic->pci->dev, buffer->dma, buffer->length,
				 DMA_TO_DEVICE);
	else if (buffer->kind == RW_TX_PAGE)
		dma_unmap_page(&nic->pci->dev, buffer->dma, buffer->length,
			       DMA_TO_DEVICE);
}

/* Drops all frames, when the device has stopped. */
void rw_tx_drop(struct rw_nic *nic)
{
	struct rw_tx *tx = nic->tx;
	u32 mask = tx->count - 1;

	__netif_tx_lock_bh(queue_of(nic));
	while (tx->clean != tx->handover.filled) {
		struct rw_tx_buffer *buffer = &tx->buffers[tx->clean];

		unmap(nic, buffer);
		if (buffer->owner == RW_TX_SKB)
			dev_kfree_skb_any(buffer->skb);
		else if (buffer->owner == RW_TX_XDP)
			xdp_return_frame(buffer->xdp);
		buffer->owner = RW_TX_NOBODY;
		tx->clean = (tx->clean + 1) & mask;
	}
	handover_begin(&tx->handover, (u32)jiffies);
	tx->clean = 0;
	__netif_tx_unlock_bh(queue_of(nic));
}

/*
 * Returns the end of what the device has sent, as far as it tells at once: with
 * a status block. A device that lies gets a reset.
 */
static u32 sent_until(struct rw_nic *nic)
{
	const struct rw_tx *tx = nic->tx;
	u32 head = csb_get(&nic->csb->host_tdh);
	u32 mask = tx->count - 1;

	if (likely(head < tx->count &&
		   ((head - tx->clean) & mask) <=
		   ((tx->handover.written - tx->clean) & mask))) {
		/* The frames' memory is free after the head was read. */
		virt_rmb();
		return head;
	}
	rw_misuse(nic, "transmit head %u is not between %u and %u", head, tx->clean,
		  tx->handover.written);
	return tx->clean;
}

/* Returns true if who goes from @before to @now reaches @position. */
static bool is_reached(const struct rw_tx *tx, u32 before, u32 now, u32 position)
{
	u32 mask = tx->count - 1;

	return ((position - before - 1) & mask) < ((now - before) & mask);
}

static void reclaim(struct rw_nic *nic, int budget)
{
	struct rw_tx *tx = nic->tx;
	u32 mask = tx->count - 1, before = tx->clean, clean = before;
	unsigned int packets = 0, bytes = 0;
	/* What was not announced is not sent, whatever the ring says. */
	u32 end = nic->csb ? sent_until(nic) : tx->handover.written;

	while (clean != end) {
		struct rw_tx_buffer *first = &tx->buffers[clean];
		u32 last = first->last, at = clean;

		/* A netpoll must not return frames of XDP: that needs interrupts. */
		if (unlikely(first->owner == RW_TX_XDP && irqs_disabled()))
			break;

		if (nic->csb) {
			/* Only whole frames. */
			if (((end - clean - 1) & mask) < ((last - clean) & mask))
				break;
		} else {
			if (!(READ_ONCE(tx->ring[last].status) & cpu_to_le32(TX_DONE)))
				break;
			dma_rmb();
		}
		for (;;) {
			unmap(nic, &tx->buffers[at]);
			if (at == last)
				break;
			at = (at + 1) & mask;
		}
		if (likely(first->owner == RW_TX_SKB)) {
			packets++;
			bytes += first->skb->len;
			napi_consume_skb(first->skb, budget);
		} else {
			xdp_return_frame(first->xdp);
		}
		first->owner = RW_TX_NOBODY;
		clean = (last + 1) & mask;
	}
	if (tx->asked != CSB_NEVER && is_reached(tx, before, end, tx->asked)) {
		tx->asked = CSB_NEVER;
		csb_want_transmitted(nic->csb, CSB_NEVER);
	}
	if (clean == before)
		return;
	tx->clean = clean;
	if (tx->has_waiter && is_reached(tx, before, clean, tx->waited))
		tx->has_waiter = false;
	if (packets)
		netdev_tx_completed_queue(queue_of(nic), packets, bytes);
	if (unlikely(tx->stopped) && room(tx) >= max_t(u32, RW_TX_FRAME, tx->count / 4)) {
		tx->stopped = false;
		netif_tx_wake_queue(queue_of(nic));
	}
}

/* Asks for an interrupt when the device is at @position. */
static void ask(struct rw_nic *nic, u32 position)
{
	nic->tx->asked = position;
	csb_want_transmitted(nic->csb, position);
}

/* Asks for the interrupt that somebody waits for. Returns true if it was not asked for before. */
static bool ask_for_waiters(struct rw_nic *nic)
{
	struct rw_tx *tx = nic->tx;

	if (tx->asked != CSB_NEVER)
		return false;
	if (netif_xmit_stopped(queue_of(nic)) && outstanding(tx)) {
		/*
		 * Half of what is there lets the queue go on before the device
		 * is idle. (With the descriptors of one frame only, its end.)
		 */
		u32 middle = (tx->clean + outstanding(tx) / 2) & (tx->count - 1);

		ask(nic, outstanding(tx) < RW_TX_FRAME ? tx->handover.filled : middle);
		return true;
	}
	if (!tx->has_waiter)
		return false;
	ask(nic, tx->waited);
	return true;
}

/*
 * Makes sure that the device will interrupt for whom waits, or has sent it all.
 * The timer looks besides, while frames are out.
 */
static void settle(struct rw_nic *nic, int budget)
{
	struct rw_tx *tx = nic->tx;
	int round;

	for (round = 0; round < SETTLE_ROUNDS && ask_for_waiters(nic); round++) {
		virt_mb();	/* the wish is visible before the head is read */
		reclaim(nic, budget);
	}
	if (outstanding(tx) && !timer_pending(&nic->reaper))
		mod_timer(&nic->reaper, jiffies + REAP_AFTER);
}

/*
 * Whether somebody waits until the frame is sent. TCP holds a segment back while
 * more than twice its memory is out (TCP small queues), so that a single small
 * one keeps none back. It never waits for a pure ACK.
 */
static bool is_waited_for(struct sk_buff *skb)
{
	const struct sock *sk = skb->sk;

	if (!sk || !skb->destructor || !sk_fullsock(sk))
		return false;
	if (sk_is_tcp(sk) && !skb_zcopy(skb))
		return !skb_is_tcp_pure_ack(skb) &&
		       refcount_read(&sk->sk_wmem_alloc) > TCP_FEW;
	/* Whoever waits for the end of each frame, as packet rings. */
	if (skb->destructor != sock_wfree || skb_zcopy(skb))
		return true;
	return refcount_read(&sk->sk_wmem_alloc) > READ_ONCE(sk->sk_sndbuf) / 2;
}

/* Tells the device of all frames that are written. */
static void announce(struct rw_nic *nic)
{
	struct rw_tx *tx = nic->tx;

	if (nic->csb && !csb_publish_transmit(nic->csb, tx->handover.written))
		return;
	rw_write(nic, REG_TDT, tx->handover.written);
	u64_stats_update_begin(&nic->tx_counts.sync);
	u64_stats_inc(&nic->tx_counts.tail_writes);
	u64_stats_update_end(&nic->tx_counts.sync);
}

/* The ring is filled up to @filled. */
static void fill(struct rw_nic *nic, u32 filled, enum handover_haste haste)
{
	struct rw_tx *tx = nic->tx;
	bool asked;

	if (!nic->csb) {
		if (handover_fill(&tx->handover, filled, haste))
			announce(nic);
		return;
	}
	if (haste == HANDOVER_MORE) {
		handover_fill(&tx->handover, filled, haste);
		return;
	}
	if (handover_fill(&tx->handover, filled, HANDOVER_NOW)) {
		/* Before the tail, so that the device sees the wish in time. */
		asked = ask_for_waiters(nic);
		announce(nic);
		/* It may have been there before. */
		if (asked && tx->asked != filled)
			reclaim(nic, 0);
	}
	settle(nic, 0);
}

/* Writes a descriptor; its frame's last one is completed by end_frame(). */
static void put_descriptor(struct rw_tx *tx, u32 at, u64 address, u32 command, u32 status)
{
	struct tx_descriptor *descriptor = &tx->ring[at];

	descriptor->address = cpu_to_le64(address);
	descriptor->command = cpu_to_le32(command);
	descriptor->status = cpu_to_le32(status);
}

/* Adds memory of a frame to the ring. Returns the next descriptor. */
static u32 put_memory(struct rw_tx *tx, u32 at, dma_addr_t dma, u32 length,
		      enum rw_tx_kind kind, const u32 *words)
{
	struct rw_tx_buffer *buffer = &tx->buffers[at];

	buffer->dma = dma;
	buffer->length = length;
	buffer->kind = kind;
	buffer->owner = RW_TX_NOBODY;
	while (unlikely(length > RW_TX_PIECE)) {
		put_descriptor(tx, at, dma, words[0] | RW_TX_PIECE, words[1]);
		dma += RW_TX_PIECE;
		length -= RW_TX_PIECE;
		at = (at + 1) & (tx->count - 1);
		tx->buffers[at].kind = RW_TX_NOTHING;
		tx->buffers[at].owner = RW_TX_NOBODY;
	}
	put_descriptor(tx, at, dma, words[0] | length, words[1]);
	return (at + 1) & (tx->count - 1);
}

/* The frame from @first to before @end is complete. */
static void end_frame(struct rw_nic *nic, u32 first, u32 end)
{
	struct rw_tx *tx = nic->tx;
	u32 last = (end - 1) & (tx->count - 1);

	tx->buffers[first].last = last;
	/* With a status block the device tells by its head. */
	tx->ring[last].command |= cpu_to_le32(nic->csb ? TX_EOP : TX_EOP | TX_RS);
}

/* Puts a context before the frame, unless the device has it. Returns the next descriptor. */
static u32 put_context(struct rw_tx *tx, u32 at, u64 sums, u64 sizes)
{
	if (tx->context[0] == sums && tx->context[1] == sizes)
		return at;
	tx->context[0] = sums;
	tx->context[1] = sizes;
	put_descriptor(tx, at, sums, lower_32_bits(sizes), upper_32_bits(sizes));
	tx->buffers[at].kind = RW_TX_NOTHING;
	tx->buffers[at].owner = RW_TX_NOBODY;
	return (at + 1) & (tx->count - 1);
}

/*
 * Asks for checksums and segmentation (3.5). Adds to the words of the frame's
 * data descriptors. Returns the next descriptor, or an error.
 */
static int put_offload(struct rw_tx *tx, u32 at, struct sk_buff *skb, u32 *words)
{
	u32 start, field, network, header, command;
	u64 sums;
	int error;

	if (skb->ip_summed != CHECKSUM_PARTIAL)
		return at;
	start = skb_checksum_start_offset(skb);
	field = start + skb->csum_offset;
	sums = (u64)start << 32 | (u64)field << 40;
	words[1] |= TX_TXSM;
	if (!skb_is_gso(skb))
		return put_context(tx, at, sums, TX_DEXT);

	error = skb_cow_head(skb, 0);
	if (error)
		return error;
	network = skb_network_offset(skb);
	header = skb_tcp_all_headers(skb);
	command = TX_DEXT | TX_TSE | TX_CONTEXT_TCP;
	if (skb_shinfo(skb)->gso_type & SKB_GSO_TCPV4) {
		struct iphdr *ip = ip_hdr(skb);

		/* The device completes lengths and sums for each segment. */
		ip->tot_len = 0;
		ip->check = 0;
		tcp_hdr(skb)->check = ~csum_tcpudp_magic(ip->saddr, ip->daddr, 0,
							 IPPROTO_TCP, 0);
		command |= TX_CONTEXT_IP4;
		words[1] |= TX_IXSM;
		sums |= network | (network + offsetof(struct iphdr, check)) << 8 |
			(start - 1) << 16;
	} else {
		tcp_v6_gso_csum_prep(skb);
		sums |= network;
	}
	words[0] |= TX_TSE;
	return put_context(tx, at, sums,
			   (u64)command | (skb->len - header) | (u64)header << 40 |
			   (u64)skb_shinfo(skb)->gso_size << 48);
}

netdev_features_t rw_features_check(struct sk_buff *skb, struct net_device *dev,
				    netdev_features_t features)
{
	/* Offsets in a context have eight bits. */
	if (skb->ip_summed == CHECKSUM_PARTIAL &&
	    (skb_checksum_start_offset(skb) + skb->csum_offset > 255 ||
	     (skb_is_gso(skb) && skb_tcp_all_headers(skb) > 255)))
		features &= ~(NETIF_F_CSUM_MASK | NETIF_F_GSO_MASK);
	/* Old kernels do not look at the length of what they forward. */
	if (skb->len >= GSO_LEGACY_MAX_SIZE)
		features &= ~NETIF_F_GSO_MASK;
	return vlan_features_check(skb, features);
}

/* Takes back the descriptors of a frame that was not completed. */
static void take_back(struct rw_nic *nic, u32 first, u32 end)
{
	struct rw_tx *tx = nic->tx;

	for (; first != end; first = (first + 1) & (tx->count - 1))
		unmap(nic, &tx->buffers[first]);
	tx->context[0] = 0;
	tx->context[1] = 0;
}

/* Maps a frame's memory into the ring. Returns the next descriptor, or an error. */
static int put_frame(struct rw_nic *nic, u32 first, struct sk_buff *skb)
{
	u32 words[2] = { TX_DEXT | TX_DATA | TX_IFCS, 0 };
	struct device *device = &nic->pci->dev;
	struct rw_tx *tx = nic->tx;
	int next, number;
	dma_addr_t dma;
	u32 at = first;

	if (skb_vlan_tag_present(skb)) {
		words[0] |= TX_VLE;
		words[1] |= skb_vlan_tag_get(skb) << TX_TAG;
	}
	next = put_offload(tx, at, skb, words);
	if (unlikely(next < 0))
		return next;
	at = next;
	dma = dma_map_single(device, skb->data, skb_headlen(skb), DMA_TO_DEVICE);
	if (unlikely(dma_mapping_error(device, dma)))
		goto no_mapping;
	at = put_memory(tx, at, dma, skb_headlen(skb), RW_TX_SINGLE, words);
	for (number = 0; number < skb_shinfo(skb)->nr_frags; number++) {
		const skb_frag_t *fragment = &skb_shinfo(skb)->frags[number];
		u32 length = skb_frag_size(fragment);

		if (unlikely(!length))
			continue;
		dma = skb_frag_dma_map(device, fragment, 0, length, DMA_TO_DEVICE);
		if (unlikely(dma_mapping_error(device, dma)))
			goto no_mapping;
		at = put_memory(tx, at, dma, length, RW_TX_PAGE, words);
	}
	return at;

no_mapping:
	take_back(nic, first, at);
	return -ENOMEM;
}

/* Stops the queue if the next frame may not fit. */
static void stop_if_full(struct rw_nic *nic)
{
	struct rw_tx *tx = nic->tx;

	if (likely(room(tx) >= RW_TX_FRAME))
		return;
	reclaim(nic, 0);
	if (room(tx) >= RW_TX_FRAME)
		return;
	netif_tx_stop_queue(queue_of(nic));
	tx->stopped = true;
	u64_stats_update_begin(&nic->tx_counts.sync);
	u64_stats_inc(&nic->tx_counts.stops);
	u64_stats_update_end(&nic->tx_counts.sync);
}

netdev_tx_t rw_start_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct rw_nic *nic = netdev_priv(dev);
	struct netdev_queue *queue = queue_of(nic);
	struct rw_tx *tx = nic->tx;
	u32 first = tx->handover.filled;
	unsigned int length = skb->len;
	/* pktgen sends into a queue that counts too many bytes in flight. */
	bool was_stopped = netif_xmit_stopped(queue);
	enum handover_haste haste;
	int end;

	if (unlikely(!tx->open)) {
		/* Resuming: the queue is awake before the device. */
		netif_tx_stop_queue(queue);
		return NETDEV_TX_BUSY;
	}
	if (unlikely(room(tx) < RW_TX_FRAME)) {
		/* The queue is stopped before that. */
		stop_if_full(nic);
		fill(nic, first, HANDOVER_NOW);
		return NETDEV_TX_BUSY;
	}
	end = put_frame(nic, first, skb);
	if (unlikely(end < 0)) {
		dev_kfree_skb_any(skb);
		u64_stats_update_begin(&nic->tx_counts.sync);
		u64_stats_inc(&nic->tx_counts.errors);
		u64_stats_update_end(&nic->tx_counts.sync);
		/* The stack may have promised this frame. */
		fill(nic, first, netdev_xmit_more() ? HANDOVER_MORE : HANDOVER_SOON);
		return NETDEV_TX_OK;
	}
	tx->buffers[first].owner = RW_TX_SKB;
	tx->buffers[first].skb = skb;
	end_frame(nic, first, end);
	skb_tx_timestamp(skb);
	if (nic->csb && is_waited_for(skb)) {
		tx->waited = end;
		tx->has_waiter = true;
	}
	u64_stats_update_begin(&nic->tx_counts.sync);
	u64_stats_add(&nic->tx_counts.packets, max_t(u32, 1, skb_shinfo(skb)->gso_segs));
	u64_stats_add(&nic->tx_counts.bytes, length);
	u64_stats_update_end(&nic->tx_counts.sync);

	/* stop_if_full() and haste look at what is filled. */
	tx->handover.filled = end;
	stop_if_full(nic);
	haste = HANDOVER_MORE;
	if (__netdev_tx_sent_queue(queue, length, netdev_xmit_more()))
		haste = !was_stopped && netif_xmit_stopped(queue) ? HANDOVER_NOW : HANDOVER_SOON;
	fill(nic, end, haste);
	return NETDEV_TX_OK;
}

/* Adds a frame of XDP. */
static void put_xdp(struct rw_nic *nic, struct xdp_frame *frame, dma_addr_t dma,
		    enum rw_tx_kind kind)
{
	static const u32 words[2] = { TX_DEXT | TX_DATA | TX_IFCS, 0 };
	struct rw_tx *tx = nic->tx;
	u32 first = tx->handover.filled, end;

	end = put_memory(tx, first, dma, frame->len, kind, words);
	tx->buffers[first].owner = RW_TX_XDP;
	tx->buffers[first].xdp = frame;
	end_frame(nic, first, end);
	tx->handover.filled = end;
	u64_stats_update_begin(&nic->tx_counts.sync);
	u64_stats_inc(&nic->tx_counts.packets);
	u64_stats_add(&nic->tx_counts.bytes, frame->len);
	u64_stats_inc(&nic->tx_counts.xdp);
	u64_stats_update_end(&nic->tx_counts.sync);
}

/* Whether a frame of XDP may come: the stack's frames have their room besides. */
static bool has_room_for_xdp(struct rw_nic *nic)
{
	struct rw_tx *tx = nic->tx;

	if (unlikely(!tx || !tx->open))
		return false;
	if (room(tx) < RW_TX_FRAME)
		reclaim(nic, 0);
	return room(tx) >= RW_TX_FRAME;
}

int rw_xdp_xmit(struct net_device *dev, int n, struct xdp_frame **frames, u32 flags)
{
	struct rw_nic *nic = netdev_priv(dev);
	struct netdev_queue *queue = queue_of(nic);
	int sent = 0;

	if (unlikely(flags & ~XDP_XMIT_FLAGS_MASK))
		return -EINVAL;
	__netif_tx_lock(queue, smp_processor_id());
	for (; sent < n; sent++) {
		struct xdp_frame *frame = frames[sent];
		dma_addr_t dma;

		if (xdp_frame_has_frags(frame) || !has_room_for_xdp(nic))
			break;
		dma = dma_map_single(&nic->pci->dev, frame->data, frame->len,
				     DMA_TO_DEVICE);
		if (dma_mapping_error(&nic->pci->dev, dma))
			break;
		put_xdp(nic, frame, dma, RW_TX_SINGLE);
	}
	/* A ring that stays full is for the watchdog. */
	if (sent)
		txq_trans_cond_update(queue);
	if (nic->tx && nic->tx->open)
		fill(nic, nic->tx->handover.filled, HANDOVER_SOON);
	__netif_tx_unlock(queue);
	return sent;
}

/* Sends a received frame back (XDP_TX). rw_tx_polled() announces it. */
bool rw_tx_back(struct rw_nic *nic, struct xdp_buff *xdp)
{
	struct netdev_queue *queue = queue_of(nic);
	struct xdp_frame *frame;
	bool sent = false;
	dma_addr_t dma;

	__netif_tx_lock(queue, smp_processor_id());
	frame = has_room_for_xdp(nic) ? xdp_convert_buff_to_frame(xdp) : NULL;
	if (frame) {
		struct page *page = virt_to_page(frame->data);

		dma = page_pool_get_dma_addr(page) + offset_in_page(frame->data);
		dma_sync_single_for_device(&nic->pci->dev, dma, frame->len,
					   DMA_BIDIRECTIONAL);
		put_xdp(nic, frame, dma, RW_TX_POOL);
		txq_trans_cond_update(queue);
		sent = true;
	}
	__netif_tx_unlock(queue);
	return sent;
}

/* A netpoll: what can be done without waiting for the lock, whose holder it may interrupt. */
void rw_tx_netpoll(struct rw_nic *nic)
{
	struct rw_tx *tx = nic->tx;

	if (!__netif_tx_trylock(queue_of(nic)))
		return;
	reclaim(nic, 0);
	fill(nic, tx->handover.filled, HANDOVER_NOW);
	__netif_tx_unlock(queue_of(nic));
}

/* A poll begins: announces what waits for it, and reclaims what is sent. */
void rw_tx_poll(struct rw_nic *nic, int budget)
{
	struct rw_tx *tx = nic->tx;

	__netif_tx_lock(queue_of(nic), smp_processor_id());
	if (handover_poll(&tx->handover, (u32)jiffies))
		announce(nic);
	reclaim(nic, budget);
	if (nic->csb)
		settle(nic, budget);
	__netif_tx_unlock(queue_of(nic));
}

/* The poll ends: announces what was sent meanwhile. */
void rw_tx_polled(struct rw_nic *nic, bool received)
{
	struct rw_tx *tx = nic->tx;

	__netif_tx_lock(queue_of(nic), smp_processor_id());
	if (handover_polled(&tx->handover, received))
		announce(nic);
	if (nic->csb)
		settle(nic, 0);
	__netif_tx_unlock(queue_of(nic));
}
