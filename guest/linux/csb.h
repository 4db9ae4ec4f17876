/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The communication status block: what driver and device tell one another by
 * memory alone (Maffione 2012, section 4.4.2; ANCS 2013, section 3.3; words as
 * FreeBSD's if_lem has them). Where the thesis has a name of its own, it is in
 * brackets.
 *
 * Each direction has the double check of the thesis's figure 4.5: who publishes
 * makes its word visible to all before it reads whether the other one sleeps.
 * Who goes to sleep makes its wish visible before it looks once more.
 */
#ifndef RINGWAY_CSB_H
#define RINGWAY_CSB_H

#include <linux/types.h>
#include <asm/barrier.h>

#define CSB_BYTES	4096
#define CSB_NEVER	0xffffffffu	/* no threshold */

struct csb {
	/* Written by the driver. */
	__le32 guest_tdt;		/* [TXSNTS] */
	__le32 guest_need_txkick;
	__le32 guest_need_rxkick;
	__le32 guest_csb_on;
	__le32 guest_rdt;		/* [RXSNTP] */
	__le32 guest_txkick_at;
	__le32 guest_use_msix;
	__le32 reserved[9];
	/* Written by the device. */
	__le32 host_tdh;		/* [TXHNTS] */
	__le32 host_need_txkick;	/* [TXNTFY] */
	__le32 host_txcycles_lim;
	__le32 host_txcycles;
	__le32 host_rdh;		/* [RXHNTR] */
	__le32 host_need_rxkick;	/* [RXNTFY] */
	__le32 host_isr;
	__le32 host_rxkick_at;
};

static inline u32 csb_get(const __le32 *word)
{
	return le32_to_cpu(READ_ONCE(*word));
}

static inline void csb_set(__le32 *word, u32 value)
{
	WRITE_ONCE(*word, cpu_to_le32(value));
}

/* Fills the block before the device learns of it. */
static inline void csb_begin(struct csb *csb)
{
	memset(csb, 0, sizeof(*csb));
	csb_set(&csb->host_need_txkick, 1);
	csb_set(&csb->host_need_rxkick, 1);
	csb_set(&csb->host_rxkick_at, CSB_NEVER);
	csb_set(&csb->guest_txkick_at, CSB_NEVER);
	csb_set(&csb->guest_need_rxkick, 1);
	csb_set(&csb->guest_csb_on, 1);
}

/* Publishes the transmit tail. Returns true if TDT has to be written. */
static inline bool csb_publish_transmit(struct csb *csb, u32 tail)
{
	virt_wmb();		/* the descriptors come before */
	csb_set(&csb->guest_tdt, tail);
	virt_mb();		/* the tail is visible before the wish is read */
	return csb_get(&csb->host_need_txkick) & 1;
}

/*
 * Publishes the receive tail, which was @before. Returns true if RDT has to be
 * written: on demand, or if the tail has reached the device's threshold in a
 * ring of @count, a power of two.
 */
static inline bool csb_publish_receive(struct csb *csb, u32 before, u32 tail,
				       u32 count)
{
	u32 at;

	virt_wmb();		/* the descriptors come before */
	csb_set(&csb->guest_rdt, tail);
	virt_mb();		/* the tail is visible before the wish is read */
	if (csb_get(&csb->host_need_rxkick) & 1)
		return true;
	at = csb_get(&csb->host_rxkick_at);
	return at < count &&
	       ((at - before - 1) & (count - 1)) < ((tail - before) & (count - 1));
}

/*
 * Asks for an interrupt when the device has sent the frames before descriptor
 * @at (CSB_NEVER: for none). Without a double check: either the tail @at is
 * published only afterwards, or the caller looks at host_tdh after a fence.
 */
static inline void csb_want_transmitted(struct csb *csb, u32 at)
{
	csb_set(&csb->guest_txkick_at, at);
}

/* Asks for no interrupts for received frames: a poll looks for them. */
static inline void csb_receive_quietly(struct csb *csb)
{
	csb_set(&csb->guest_need_rxkick, 0);
}

/* Asks for interrupts. The caller looks for frames once more afterwards. */
static inline void csb_want_received(struct csb *csb)
{
	csb_set(&csb->guest_need_rxkick, 1);
	virt_mb();		/* the wish is visible before the caller looks */
}

/*
 * Whether the cause register has to be read after a message that has cleared
 * the causes of the rings. Ends the device's wish before.
 */
static inline bool csb_has_causes(struct csb *csb)
{
	if (likely(!csb_get(&csb->host_isr)))
		return false;
	csb_set(&csb->host_isr, 0);
	virt_mb();		/* what is noted from now on is seen later */
	return true;
}

#endif
