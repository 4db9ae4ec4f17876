// SPDX-License-Identifier: GPL-2.0
/*
 * Interrupts, polls, and how often the device interrupts.
 *
 * The least time between two interrupts is a register (ITR). It saves work when
 * many frames are under way, and costs time when few are: a peer may wait for
 * each of them (Maffione 2012, chapter 5). So it holds only under load: many
 * frames in a clock tick that do not answer one another in turn.
 */
#include "ringway_e1000.h"

/* Frames per second, both directions together, from which on there may be load. */
#define LOAD_RATE	10000

u32 rw_moderation_register(const struct rw_moderation *moderation)
{
	if (moderation->adaptive && !moderation->busy)
		return 0;
	return moderation->usecs * 1000 / ITR_UNIT_NS;
}

/* Sets the register if it has to change. */
void rw_moderate(struct rw_nic *nic)
{
	struct rw_moderation *moderation = &nic->moderation;
	u32 value = rw_moderation_register(moderation);

	if (value == moderation->now)
		return;
	moderation->now = value;
	rw_write(nic, REG_ITR, value);
}

/* Counts a poll, and judges the window when its clock tick is over. */
static void judge(struct rw_nic *nic, u32 received)
{
	struct rw_moderation *moderation = &nic->moderation;
	u32 now = jiffies, ticks = now - moderation->window;
	u32 sent, frames, more, fewer;
	u64 packets;

	moderation->polls++;
	moderation->received += received;
	if (!ticks)
		return;
	packets = u64_stats_read(&nic->tx_counts.packets);
	sent = packets - moderation->sent;
	received = moderation->received;
	frames = sent + received;
	more = max(sent, received);
	fewer = min(sent, received);
	/* Either many frames in a poll, or no answer to most of them. */
	moderation->busy = frames / ticks >= LOAD_RATE / HZ &&
			   (frames / 8 >= moderation->polls || more / 2 >= fewer);
	moderation->window = now;
	moderation->polls = 0;
	moderation->received = 0;
	moderation->sent = packets;
	rw_moderate(nic);
}

/* Returns the causes of an interrupt, and clears them. */
static u32 take_causes(struct rw_nic *nic)
{
	u32 cleared = INT_RXT0 | INT_TXDW;

	if (!nic->csb || !nic->pci->msi_enabled)
		return rw_read(nic, REG_ICR);
	/* The message has cleared those of the rings. */
	return csb_has_causes(nic->csb) ? cleared | rw_read(nic, REG_ICR) : cleared;
}

irqreturn_t rw_interrupt(int irq, void *data)
{
	struct rw_nic *nic = data;
	u32 causes = take_causes(nic);

	/* Another device's, or this one is gone. */
	if (!causes || causes == ~0u)
		return IRQ_NONE;
	nic->interrupts++;
	if (causes & INT_LSC && test_bit(RW_STARTED, &nic->flags))
		schedule_work(&nic->link_work);
	if (napi_schedule_prep(&nic->napi)) {
		if (nic->csb)
			csb_receive_quietly(nic->csb);
		else
			rw_write(nic, REG_IMC, ~0u);
		__napi_schedule(&nic->napi);
	}
	return IRQ_HANDLED;
}

int rw_poll(struct napi_struct *napi, int budget)
{
	struct rw_nic *nic = container_of(napi, struct rw_nic, napi);
	bool completed;
	int taken;

	if (unlikely(!budget)) {
		rw_tx_netpoll(nic);
		return 0;
	}
	nic->polls++;
	if (!rw_tx_is_idle(nic))
		rw_tx_poll(nic, budget);
	taken = rw_rx_poll(nic, budget);
	judge(nic, taken);
	/* The stack may send while it takes what it was given. */
	completed = taken < budget && napi_complete_done(napi, taken);
	if (!rw_tx_is_idle(nic))
		rw_tx_polled(nic, taken);
	if (!completed)
		return taken;
	if (!nic->csb) {
		rw_write(nic, REG_IMS, nic->causes);
		return taken;
	}
	csb_want_received(nic->csb);
	if (rw_rx_is_ready(nic) && napi_schedule_prep(napi)) {
		csb_receive_quietly(nic->csb);
		__napi_schedule(napi);
	}
	return taken;
}

/* Schedules a poll from process context. */
void rw_poll_now(struct rw_nic *nic)
{
	local_bh_disable();
	napi_schedule(&nic->napi);
	local_bh_enable();
}

/* Nobody has looked for a while: a poll frees what is sent, and looks for memory. */
void rw_reap(struct timer_list *timer)
{
	struct rw_nic *nic = container_of(timer, struct rw_nic, reaper);

	napi_schedule(&nic->napi);
}

/* Looks whether the device is where the driver is. */
void rw_watch(struct timer_list *timer)
{
	struct rw_nic *nic = container_of(timer, struct rw_nic, watch);

	mod_timer(timer, jiffies + rw_rx_watch(nic));
}
