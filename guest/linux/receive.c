// SPDX-License-Identifier: GPL-2.0
/*
 * The receive ring. Only polls touch it while the device runs.
 *
 * Buffers are halves of pages, or whole pages for long frames and XDP, from a
 * page pool, which maps them once. Short frames are copied and their buffers
 * stay in the ring.
 */
#include <linux/bpf_trace.h>
#include <linux/etherdevice.h>
#include <linux/filter.h>

#include "ringway_e1000.h"

/* Frames after which a poll looks whether buffers have to be renewed. */
#define RENEW_EVERY	16

/* Time between two looks at where the device is, and to the second one when it is elsewhere. */
#define WATCH_EVERY	(2 * HZ)
#define WATCH_AGAIN	(HZ / 2)

/* Bytes of a frame, in its buffer. */
struct piece {
	u8 *data;
	u32 length;
};

/* What happens with a frame. */
enum verdict {
	PASS,
	DONE,			/* without its buffer */
	TAKEN,			/* with its buffer */
};

static u32 used(const struct rw_rx *rx)
{
	return (rx->next - rx->filled - 1) & (rx->count - 1);
}

static struct page_pool *make_pool(struct rw_nic *nic, const struct rw_rx *rx)
{
	struct page_pool_params params = {
		.flags = PP_FLAG_DMA_MAP,
		.pool_size = rx->count,
		.nid = NUMA_NO_NODE,
		.dev = &nic->pci->dev,
		.dma_dir = rx->direction,
	};

#ifdef PP_FLAG_PAGE_FRAG
	if (rx->truesize < PAGE_SIZE)
		params.flags |= PP_FLAG_PAGE_FRAG;
#endif
	return page_pool_create(&params);
}

static bool find_memory(struct rw_nic *nic, struct rw_rx_buffer *buffer)
{
	struct rw_rx *rx = nic->rx;
	u32 offset = 0;

	if (rx->truesize < PAGE_SIZE)
		buffer->page = page_pool_dev_alloc_frag(rx->pool, &offset, rx->truesize);
	else
		buffer->page = page_pool_dev_alloc_pages(rx->pool);
	if (unlikely(!buffer->page))
		return false;
	offset += rx->headroom;
	buffer->data = (u8 *)page_address(buffer->page) + offset;
	buffer->dma = page_pool_get_dma_addr(buffer->page) + offset;
	buffer->sync = dma_need_sync(&nic->pci->dev, buffer->dma);
	return true;
}

/* The stack takes the buffer. */
static void give_away(struct rw_rx *rx, struct rw_rx_buffer *buffer)
{
	buffer->page = NULL;
	rx->changed = true;
}

/* Prepares the descriptors that were used. The device does not know of them yet. */
static void refill(struct rw_nic *nic)
{
	struct rw_rx *rx = nic->rx;
	u32 left = used(rx), at = rx->filled;

	if (!rx->changed) {
		rx->filled = (at + left) & (rx->count - 1);
		return;
	}
	for (; left; left--) {
		struct rw_rx_buffer *buffer = &rx->buffers[at];

		if (!buffer->page) {
			if (unlikely(!find_memory(nic, buffer)))
				break;
			rx->ring[at].address = cpu_to_le64(buffer->dma);
		}
		if (buffer->sync)
			dma_sync_single_for_device(&nic->pci->dev, buffer->dma,
						   rx->longest, rx->direction);
		at = (at + 1) & (rx->count - 1);
	}
	rx->filled = at;
	/* The descriptor between end and beginning may have had no buffer yet. */
	rx->changed = left || !rx->buffers[at].page;
	if (unlikely(left)) {
		u64_stats_update_begin(&nic->rx_counts.sync);
		u64_stats_inc(&nic->rx_counts.no_memory);
		u64_stats_update_end(&nic->rx_counts.sync);
	}
}

/* Tells the device of all prepared descriptors. */
void rw_rx_give(struct rw_nic *nic)
{
	struct rw_rx *rx = nic->rx;
	u32 before = rx->tail;

	if (rx->filled == before)
		return;
	rx->tail = rx->filled;
	if (nic->csb && !csb_publish_receive(nic->csb, before, rx->tail, rx->count))
		return;
	rw_write(nic, REG_RDT, rx->tail);
	u64_stats_update_begin(&nic->rx_counts.sync);
	u64_stats_inc(&nic->rx_counts.tail_writes);
	u64_stats_update_end(&nic->rx_counts.sync);
}

/* Prepares and gives buffers in lots: each may cost a register write. */
static void renew(struct rw_nic *nic)
{
	struct rw_rx *rx = nic->rx;

	if (used(rx) < rx->count / 8)
		return;
	refill(nic);
	rw_rx_give(nic);
}

struct rw_rx *rw_rx_make(struct rw_nic *nic, const struct rw_setup *setup)
{
	struct rw_rx *rx = kzalloc(sizeof(*rx), GFP_KERNEL);
	u32 tail = SKB_DATA_ALIGN(sizeof(struct skb_shared_info));
	struct page_pool *pool;

	if (!rx)
		return NULL;
	rx->count = setup->rx_count;
	rx->xdp = setup->xdp;
	rx->direction = rx->xdp ? DMA_BIDIRECTIONAL : DMA_FROM_DEVICE;
	rx->headroom = rx->xdp ? XDP_PACKET_HEADROOM : NET_SKB_PAD;
	rx->longest = setup->mtu > ETH_DATA_LEN ? RW_RX_BUFFER : RW_RX_SHORT;
	rx->truesize = SKB_DATA_ALIGN(rx->headroom + rx->longest) + tail;
	rx->truesize = rx->truesize > PAGE_SIZE / 2 ? PAGE_SIZE : PAGE_SIZE / 2;
	rx->buffers = kvcalloc(rx->count, sizeof(*rx->buffers), GFP_KERNEL);
	rx->ring = dma_alloc_coherent(&nic->pci->dev, rx->count * sizeof(*rx->ring),
				      &rx->dma, GFP_KERNEL);
	pool = make_pool(nic, rx);
	if (IS_ERR(pool))
		goto no_memory;
	rx->pool = pool;
	if (!rx->buffers || !rx->ring ||
	    xdp_rxq_info_reg(&rx->info, nic->dev, 0, nic->napi.napi_id))
		goto no_memory;
	if (xdp_rxq_info_reg_mem_model(&rx->info, MEM_TYPE_PAGE_POOL, pool))
		goto no_memory;
	return rx;

no_memory:
	rw_rx_free(nic, rx);
	return NULL;
}

/* Frees a ring that the device does not have. */
void rw_rx_free(struct rw_nic *nic, struct rw_rx *rx)
{
	u32 at;

	if (!rx)
		return;
	for (at = 0; rx->buffers && at < rx->count; at++)
		if (rx->buffers[at].page)
			page_pool_put_full_page(rx->pool, rx->buffers[at].page, false);
	if (xdp_rxq_info_is_reg(&rx->info))
		xdp_rxq_info_unreg(&rx->info);
	if (rx->pool)
		page_pool_destroy(rx->pool);
	if (rx->ring)
		dma_free_coherent(&nic->pci->dev, rx->count * sizeof(*rx->ring),
				  rx->ring, rx->dma);
	kvfree(rx->buffers);
	kfree(rx);
}

/* Fills the ring, before the device learns of it. Buffers that it has stay. */
int rw_rx_begin(struct rw_nic *nic)
{
	struct rw_rx *rx = nic->rx;
	u32 at;

	memset(rx->ring, 0, rx->count * sizeof(*rx->ring));
	rx->next = 0;
	rx->filled = 0;
	rx->tail = 0;
	rx->doubted = -1;
	rx->skip = false;
	rx->careful = rx->xdp;
	rx->changed = true;
	for (at = 0; at < rx->count; at++)
		rx->ring[at].address = cpu_to_le64(rx->buffers[at].dma);
	refill(nic);
	return rx->filled ? 0 : -ENOMEM;
}

/* Drops a frame that has begun, when the device has stopped. */
void rw_rx_drop(struct rw_nic *nic)
{
	kfree_skb(nic->rx->skb);
	nic->rx->skb = NULL;
}

bool rw_rx_is_ready(const struct rw_nic *nic)
{
	const struct rw_rx *rx = nic->rx;
	u32 next = READ_ONCE(rx->next);

	return next != READ_ONCE(rx->tail) && READ_ONCE(rx->ring[next].status) & RX_STATUS_DONE;
}

/*
 * Whether the device receives elsewhere than at the next descriptor: it has said
 * of some that they are done which were not, or the other way round. For a moment
 * that is so while it delivers frames, as it may write the first one last.
 */
static bool is_out_of_step(const struct rw_nic *nic)
{
	const struct rw_rx *rx = nic->rx;
	u32 next = READ_ONCE(rx->next), head = rw_read(nic, REG_RDH), at = next;

	if (head == ~0u)
		return false;
	while (head == next && (at = (at + 1) & (rx->count - 1)) != next)
		if (READ_ONCE(rx->ring[at].status) & RX_STATUS_DONE)
			break;
	if (head == next && at == next)
		return false;
	/* An honest device may have got there meanwhile. */
	dma_rmb();
	return !(READ_ONCE(rx->ring[next].status) & RX_STATUS_DONE) && READ_ONCE(rx->next) == next;
}

/*
 * Looks now and then whether the device is where the driver is, as nothing would
 * be received any more. Returns the time to the next look.
 */
unsigned long rw_rx_watch(struct rw_nic *nic)
{
	struct rw_rx *rx = nic->rx;
	u32 next = READ_ONCE(rx->next), doubted = READ_ONCE(rx->doubted);

	WRITE_ONCE(rx->doubted, -1);
	if (!is_out_of_step(nic))
		return WATCH_EVERY;
	if (next == doubted) {
		rw_misuse(nic, "it receives elsewhere than at descriptor %u", next);
		return WATCH_EVERY;
	}
	WRITE_ONCE(rx->doubted, next);
	return WATCH_AGAIN;
}

static void count_one(struct rw_nic *nic, u64_stats_t *count)
{
	u64_stats_update_begin(&nic->rx_counts.sync);
	u64_stats_inc(count);
	u64_stats_update_end(&nic->rx_counts.sync);
}

/* Lets the program of XDP judge a frame. */
static enum verdict judge(struct rw_nic *nic, struct xdp_buff *xdp)
{
	struct rw_rx *rx = nic->rx;
	u32 action = bpf_prog_run_xdp(rx->xdp, xdp);

	switch (action) {
	case XDP_PASS:
		return PASS;
	case XDP_TX:
		if (!rw_tx_back(nic, xdp))
			break;
		count_one(nic, &nic->rx_counts.xdp_sent);
		return TAKEN;
	case XDP_REDIRECT:
		if (xdp_do_redirect(nic->dev, xdp, rx->xdp))
			break;
		count_one(nic, &nic->rx_counts.xdp_redirected);
		return TAKEN;
	default:
		bpf_warn_invalid_xdp_action(nic->dev, rx->xdp, action);
		fallthrough;
	case XDP_ABORTED:
		trace_xdp_exception(nic->dev, rx->xdp, action);
		fallthrough;
	case XDP_DROP:
		break;
	}
	count_one(nic, &nic->rx_counts.xdp_dropped);
	return DONE;
}

/* Returns what is left of a frame for the stack: without data, nothing. */
static struct piece run_xdp(struct rw_nic *nic, struct rw_rx_buffer *buffer, u32 length)
{
	struct rw_rx *rx = nic->rx;
	struct piece piece = {};
	struct xdp_buff xdp;
	enum verdict verdict;

	xdp_init_buff(&xdp, rx->truesize, &rx->info);
	xdp_prepare_buff(&xdp, buffer->data - rx->headroom, rx->headroom, length, false);
	verdict = judge(nic, &xdp);
	if (verdict == TAKEN)
		give_away(rx, buffer);
	if (verdict != PASS || xdp.data_end - xdp.data < ETH_HLEN)
		return piece;
	piece.data = xdp.data;
	piece.length = xdp.data_end - xdp.data;
	return piece;
}

/* Returns a copy of a short frame, or NULL. */
static __always_inline struct sk_buff *copy(struct rw_nic *nic, struct piece piece)
{
	struct sk_buff *skb = napi_alloc_skb(&nic->napi, piece.length);

	if (unlikely(!skb)) {
		count_one(nic, &nic->rx_counts.no_memory);
		return NULL;
	}
	memcpy(__skb_put(skb, piece.length), piece.data, piece.length);
	count_one(nic, &nic->rx_counts.copied);
	return skb;
}

/* Returns a frame or its first part with its buffer, or NULL. */
static __always_inline struct sk_buff *
take(struct rw_nic *nic, struct rw_rx_buffer *buffer, struct piece piece)
{
	struct rw_rx *rx = nic->rx;
	u8 *start = buffer->data - rx->headroom;
	struct sk_buff *skb = napi_build_skb(start, rx->truesize);

	if (unlikely(!skb)) {
		count_one(nic, &nic->rx_counts.no_memory);
		return NULL;
	}
	skb_mark_for_recycle(skb);
	skb_reserve(skb, piece.data - start);
	__skb_put(skb, piece.length);
	give_away(rx, buffer);
	return skb;
}

/* Gives a whole frame to the stack. */
static void deliver(struct rw_nic *nic, struct sk_buff *skb, u64 written)
{
	netdev_features_t features = nic->dev->features;

	skb_checksum_none_assert(skb);
	if (features & NETIF_F_RXCSUM &&
	    (written & (RX_TCPCS | RX_IXSM | RX_ERROR_TCPE)) == RX_TCPCS)
		skb->ip_summed = CHECKSUM_UNNECESSARY;
	if (written & RX_VP && features & NETIF_F_HW_VLAN_CTAG_RX)
		__vlan_hwaccel_put_tag(skb, htons(ETH_P_8021Q),
				       FIELD_GET(RX_TAG, written));
	skb->protocol = eth_type_trans(skb, nic->dev);
	napi_gro_receive(&nic->napi, skb);
}

/* Returns the frame that ends with this part, or NULL. */
static noinline struct sk_buff *receive_carefully(struct rw_nic *nic,
						  struct rw_rx_buffer *buffer,
						  u64 written)
{
	struct rw_rx *rx = nic->rx;
	struct piece piece = { buffer->data, FIELD_GET(RX_LENGTH, written) };
	struct sk_buff *skb = rx->skb;
	bool whole = !skb && written & RX_EOP;

	if (rx->skip)
		goto skip;
	if (piece.length > rx->longest) {
		rw_misuse(nic, "%u bytes received into a buffer of %u", piece.length,
			  rx->longest);
		count_one(nic, &nic->rx_counts.bad);
		goto drop;
	}
	if (written & RX_ERROR_FRAME || !piece.length ||
	    (!skb && piece.length < ETH_HLEN) || (rx->xdp && !whole)) {
		count_one(nic, &nic->rx_counts.errors);
		goto drop;
	}
	if (buffer->sync) {
		dma_sync_single_for_cpu(&nic->pci->dev, buffer->dma, piece.length,
					rx->direction);
		rx->changed = true;
	}
	if (rx->xdp) {
		piece = run_xdp(nic, buffer, piece.length);
		if (!piece.data)
			return NULL;
	}
	if (whole && piece.length <= RW_RX_COPY)
		return copy(nic, piece);
	if (!skb) {
		skb = take(nic, buffer, piece);
		if (!skb)
			goto skip;
	} else if (skb_shinfo(skb)->nr_frags == MAX_SKB_FRAGS) {
		rw_misuse(nic, "a frame of more than %u descriptors was received",
			  (u32)MAX_SKB_FRAGS);
		count_one(nic, &nic->rx_counts.bad);
		goto drop;
	} else {
		skb_add_rx_frag(skb, skb_shinfo(skb)->nr_frags, buffer->page,
				offset_in_page(buffer->data), piece.length,
				rx->truesize);
		give_away(rx, buffer);
	}
	rx->skb = written & RX_EOP ? NULL : skb;
	rx->careful = rx->xdp || rx->skb;
	return rx->skb ? NULL : skb;

drop:
	kfree_skb(rx->skb);
	rx->skb = NULL;
skip:
	rx->skip = !(written & RX_EOP);
	rx->careful = rx->xdp || rx->skip;
	return NULL;
}

/* Returns the frame that ends with what the device has @written, or NULL. */
static struct sk_buff *receive(struct rw_nic *nic, struct rw_rx_buffer *buffer,
			       u64 written)
{
	const struct rw_rx *rx = nic->rx;
	struct piece piece = { buffer->data, FIELD_GET(RX_LENGTH, written) };

	if (unlikely(rx->careful || buffer->sync ||
		     (written & (RX_EOP | RX_ERROR_FRAME)) != RX_EOP ||
		     piece.length - ETH_HLEN > rx->longest - ETH_HLEN))
		return receive_carefully(nic, buffer, written);
	return piece.length <= RW_RX_COPY ? copy(nic, piece) : take(nic, buffer, piece);
}

/* Takes up to @budget descriptors. Returns their number. */
int rw_rx_poll(struct rw_nic *nic, int budget)
{
	struct rw_rx *rx = nic->rx;
	u32 next = rx->next, frames = 0, bytes = 0;
	int taken = 0;

	while (taken < budget && next != rx->tail) {
		struct rx_descriptor *descriptor = &rx->ring[next];
		struct rw_rx_buffer *buffer = &rx->buffers[next];
		struct sk_buff *skb;
		u64 written;

		if (!(READ_ONCE(descriptor->status) & RX_STATUS_DONE))
			break;
		/* The rest of the descriptor after its status. */
		dma_rmb();
		written = le64_to_cpu(READ_ONCE(descriptor->written));
		/* As before: a device that lies may have written all of it. */
		descriptor->address = cpu_to_le64(buffer->dma);
		descriptor->written = 0;
		skb = receive(nic, buffer, written);
		if (likely(skb)) {
			frames++;
			bytes += skb->len;
			deliver(nic, skb, written);
		}
		next = (next + 1) & (rx->count - 1);
		WRITE_ONCE(rx->next, next);
		taken++;
		if (!(next % RENEW_EVERY))
			renew(nic);
	}
	renew(nic);
	/* The ring may come round to the same descriptor before the next look. */
	if (taken)
		WRITE_ONCE(rx->doubted, -1);
	if (rx->xdp && taken)
		xdp_do_flush();
	if (unlikely(next == rx->tail)) {
		/* Without memory there is no event: the timer tries again. */
		refill(nic);
		rw_rx_give(nic);
		if (next == rx->tail && !timer_pending(&nic->reaper))
			mod_timer(&nic->reaper, jiffies + HZ / 10);
	}
	u64_stats_update_begin(&nic->rx_counts.sync);
	u64_stats_add(&nic->rx_counts.packets, frames);
	u64_stats_add(&nic->rx_counts.bytes, bytes);
	u64_stats_update_end(&nic->rx_counts.sync);
	return taken;
}
