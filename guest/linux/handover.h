/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Send combining: when the driver writes the tail of the transmit ring.
 *
 * Each write of the tail register of an emulated NIC is an exit from guest
 * mode. While an interrupt for sent frames is due, the driver leaves frames in
 * the ring without telling the device. The poll that the interrupt causes hands
 * them all over with one write (Rizzo et al., ANCS 2013, section 3.2; Maffione
 * 2012, section 3.3).
 *
 * The rule that keeps every frame moving: frames stay in the ring unannounced
 * only while
 *  - an interrupt for sent frames is due, or
 *  - a poll runs, which announces them when it ends, or
 *  - the network stack has promised another frame at once.
 *
 * An interrupt is due from a write of the tail until a poll begins. (The device
 * interrupts for each frame that it has sent, after a while.) A poll that
 * announces frames keeps it due, as the device will interrupt for these, too.
 *
 * The caller holds the lock of the transmit queue in each function. This file
 * is compiled into the driver and into a Spin model (check/handover.pml). It
 * uses nothing of the kernel but u8, u32 and bool.
 */
#ifndef RINGWAY_HANDOVER_H
#define RINGWAY_HANDOVER_H

enum handover_mode {
	HANDOVER_AUTO,		/* combine above a rate of frames */
	HANDOVER_ON,		/* combine always */
	HANDOVER_OFF,		/* never combine */
};

/* How soon the device has to hear of a frame. */
enum handover_haste {
	HANDOVER_MORE,		/* the stack sends another one at once */
	HANDOVER_SOON,		/* when the interrupt comes, if one is due */
	HANDOVER_NOW,		/* the queue is stopped */
};

struct handover {
	u32 filled;		/* first descriptor without a frame */
	u32 written;		/* the tail register */
	bool due;		/* an interrupt for sent frames will come */
	bool polled;		/* a poll runs */
	bool combining;
	bool answering;		/* the next frame may answer a received one */
	u8 mode;		/* enum handover_mode */
	u32 bulk;		/* frames in this window that answer nothing */
	u32 window;		/* clock tick in which the window began */
	u32 threshold;		/* frames in a tick from which on to combine */
};

/* Begins with an empty ring. mode and threshold stay. */
static inline void handover_begin(struct handover *h, u32 now)
{
	h->filled = 0;
	h->written = 0;
	h->due = false;
	h->polled = false;
	h->combining = h->mode == HANDOVER_ON;
	h->answering = false;
	h->bulk = 0;
	h->window = now;
}

static inline bool handover_is_pending(const struct handover *h)
{
	return h->filled != h->written;
}

/*
 * Judges the rate of the window that ends at tick @now. A frame that may be an
 * answer does not count, as its asker waits.
 */
static inline void handover_judge(struct handover *h, u32 now)
{
	u32 ticks = now - h->window;

	if (h->mode != HANDOVER_AUTO || !ticks)
		return;
	h->combining = h->bulk / ticks >= h->threshold;
	h->bulk = 0;
	h->window = now;
}

/* Takes what is pending as written. Returns true if something is. */
static inline bool handover_announce(struct handover *h)
{
	if (!handover_is_pending(h))
		return false;
	h->written = h->filled;
	h->due = true;
	return true;
}

/* The ring is filled up to @filled. Returns true if the tail has to be written. */
static inline bool handover_fill(struct handover *h, u32 filled,
				 enum handover_haste haste)
{
	h->filled = filled;
	if (h->answering)
		h->answering = false;
	else
		h->bulk++;
	if (haste == HANDOVER_MORE)
		return false;
	if (haste == HANDOVER_SOON && h->combining && (h->due || h->polled))
		return false;
	return handover_announce(h);
}

/*
 * A poll begins, after the cause of its interrupt was read if there was one.
 * Returns true if the tail has to be written.
 */
static inline bool handover_poll(struct handover *h, u32 now)
{
	handover_judge(h, now);
	h->due = false;
	h->polled = true;
	h->answering = true;
	return handover_announce(h);
}

/* The poll ends. @received: with frames. Returns true if the tail has to be written. */
static inline bool handover_polled(struct handover *h, bool received)
{
	h->polled = false;
	h->answering = received;
	return handover_announce(h);
}

#endif
