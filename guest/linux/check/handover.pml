/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Send combining and everything around it, for Spin. The rule is
 * ../handover.h, the file that is compiled into the driver. ./run checks it.
 *
 * What the driver does under the lock of the transmit queue is one step here:
 * one action in it at most can be seen by others, a write of the tail or a look
 * at what the device has done. A poll with both takes two steps, which allows
 * more than the lock does.
 *
 * WRONG_... are drivers with a mistake. ./run expects that Spin finds each.
 */
#define ROOM	3		/* descriptors of a ring of 4 */
#define FRAME	2		/* descriptors of a frame, at most */
#ifdef LIVENESS
#define OTHERS	1		/* processors that may still end a poll while the next one runs */
#else
#define OTHERS	2
#endif

c_decl {
	\#include <stdbool.h>
	\#include <stdio.h>
	typedef unsigned char u8;
	typedef unsigned int u32;
	\#include "handover.h"

	/* What has to happen somewhere in a search: otherwise it proves nothing. */
	enum situation {
		LEFT_MORE, LEFT_DUE, LEFT_POLLED, TOLD_BY_POLL, TOLD_BY_POLLED, TOLD_BY_DROP,
		STOPPED, WOKEN, MISSED, DEFERRED, CUT_OFF, RESET,
#ifndef LIVENESS
		REST,
#endif
		SITUATIONS
	};
	static unsigned long happened[SITUATIONS];
	extern void (*uerror)(char *);
};

c_state "struct handover h" "Global"

/*
 * The device. Places in the ring count from the first descriptor that is not
 * reclaimed: to handover.h they are names that it compares.
 */
byte head;		/* first descriptor that is not done */
byte tail;		/* register */
bool unreported;	/* some are done since it last set the cause */
bool cause;		/* register: why it interrupts */
bool unmasked = true;	/* register */

/* NAPI: bits of its state, its place in the list of polls to run, its timer. */
bool scheduled, missed, disabled, listed, timer;
/* Processors that have still to end a poll, or to unmask after it. */
byte ending, unmasking;
#ifdef WRONG_LOCK
byte late;		/* a tail to write */
#endif

/* The network stack and the driver. */
bool promised;		/* another frame comes at once */
bool stopped;		/* the transmit queue */

c_code {
	/*
	 * Writes the tail if @told. Takes the rate of frames out of the state: what
	 * is judged from it is any before each call, see judge().
	 */
	static void tell(bool told)
	{
		if (told && now.h.written < now.tail)
			uerror("the tail moves back");
		if (told)
			now.tail = now.h.written;
		if (now.tail > now.h.filled)
			uerror("the tail passes what is filled");
		now.h.combining = now.h.answering = false;
		now.h.bulk = 0;
	}

	/* A frame of @count descriptors. */
	static void start_xmit(u32 count, bool more)
	{
		u32 filled = now.h.filled + count;
		enum handover_haste haste = more ? HANDOVER_MORE : HANDOVER_SOON;
		bool due = now.h.due, polled = now.h.polled, told;

		if (ROOM - filled < FRAME) {
			now.stopped = true;
			happened[STOPPED]++;
			haste = HANDOVER_NOW;
		}
		told = handover_fill(&now.h, filled, haste);
		happened[LEFT_MORE] += !told && haste == HANDOVER_MORE;
		happened[LEFT_DUE] += !told && haste == HANDOVER_SOON && due;
		happened[LEFT_POLLED] += !told && haste == HANDOVER_SOON && !due && polled;
#ifdef WRONG_LOCK
		now.late = told ? now.h.written : 0;
		told = false;
#endif
		tell(told);
		/* The stack keeps no promise to a queue that has stopped. */
		now.promised = more && !now.stopped;
	}

	/* The driver drops a frame that may have been promised. */
	static void drop(bool more)
	{
		bool told = false;

#ifndef WRONG_DROP
		told = handover_fill(&now.h, now.h.filled, more ? HANDOVER_MORE : HANDOVER_SOON);
		happened[TOLD_BY_DROP] += told;
#endif
		tell(told);
		now.promised = more;
	}

	static void poll_begins(void)
	{
		bool told = handover_poll(&now.h, 0);

		happened[TOLD_BY_POLL] += told;
		tell(told);
	}

	static void poll_ends(void)
	{
		bool told = false;

#ifndef WRONG_END
		told = handover_polled(&now.h, now.h.answering);
		happened[TOLD_BY_POLLED] += told;
#endif
		tell(told);
	}

	static void reclaim(void)
	{
		now.h.filled -= now.head;
		now.h.written -= now.head;
		now.tail -= now.head;
#ifdef WRONG_LOCK
		now.late -= now.late > now.head ? now.head : now.late;
#endif
		now.head = 0;
#ifndef WRONG_WAKE
		if (now.stopped && ROOM - now.h.filled >= FRAME) {
			now.stopped = false;
			happened[WOKEN]++;
		}
#endif
	}

	/* The queue is stopped, the device reset, the ring empty. */
	static void reset(void)
	{
		happened[RESET] += handover_is_pending(&now.h);
		now.head = now.tail = 0;
		now.unreported = now.cause = now.unmasked = now.promised = false;
		now.stopped = true;
#ifdef WRONG_RESET
		now.stopped = false;
#endif
#ifdef WRONG_BEGIN
		now.h.filled = now.h.written = 0;
#else
		handover_begin(&now.h, 0);
#endif
	}

	static void __attribute__((destructor)) report(void)
	{
		static const char *const names[] = {
			"a frame waits for the promised one", "a frame waits for the interrupt",
			"a frame waits for the end of a poll", "the begin of a poll writes the tail",
			"the end of a poll writes the tail", "a dropped frame writes the tail",
			"the queue stops", "the queue is woken", "an interrupt comes while a poll runs",
			"a timer has to poll again", "a reset ends a poll", "a reset loses unannounced frames",
			"nothing happens unless the stack sends"
		};
		int i;

		for (i = 0; i < SITUATIONS; i++)
			printf("%s: %s\n", happened[i] ? "happened" : "NEVER happened", names[i]);
	}
}

#ifdef LIVENESS
/*
 * If a frame were never sent, the stack would stop in the end, or the full ring
 * would stop it.
 */
#define ALL_SENT	c_expr { now.head == now.h.filled }
ltl everything_moves { ([]<> (!stack@over || ALL_SENT)) && ([]<> !stopped) }
#endif

/* The judgement of the rate of frames is anything, at any time. */
inline judge()
{
	if
	:: c_code { now.h.combining = true; }
	:: c_code { now.h.answering = true; }
	:: c_code { now.h.combining = now.h.answering = true; }
	:: skip
	fi
}

/* Sends when it likes. */
active proctype stack()
{
	do
	:: atomic { !stopped -> judge();
		if
		:: c_code { start_xmit(1, false); }
		:: c_code { start_xmit(1, true); }
		:: c_code { start_xmit(2, false); }
		:: c_code { start_xmit(2, true); }
		:: c_code { drop(false); }
		/* Nothing changes if the frame before it promised one, too: bursts end. */
		:: !promised -> c_code { drop(true); }
		fi }
#ifdef WRONG_LOCK
		d_step {
			if
			:: late -> c_code {
				if (now.late < now.tail)
					uerror("the tail moves back");
				now.tail = now.late;
				now.late = 0;
			}
			:: else
			fi }
#endif
	:: !promised
#ifdef LIVENESS
	:: !promised -> break
#endif
	od
#ifdef LIVENESS
over:	false
#endif
}

/* Reports what it has done late, and much at once. */
active proctype device()
{
	do
	:: d_step { head != tail -> head++; unreported = true }
	:: d_step { unreported -> unreported = false; cause = true }
	od
}

/* The interrupt's handler. While the interrupt is masked, it may run for another device on the same line. */
active proctype interrupt()
{
idle:	do
	:: d_step { cause ->
#ifndef WRONG_ORDER
		cause = false
#endif
		}
		/* napi_schedule_prep() */
		if
		:: d_step { disabled || scheduled ->
#ifndef WRONG_MISSED
			if
			:: !disabled -> missed = true; c_code { happened[MISSED]++; }
			:: else
			fi
#endif
			}
		:: d_step { !disabled && !scheduled -> scheduled = true }
			unmasked = false;
			listed = true
		fi
	:: cause && !unmasked
	od
}

active proctype timer_of_poll()
{
	do
	:: d_step { timer -> timer = false;
		if
		:: disabled || scheduled
		:: else -> scheduled = true; listed = true
		fi }
	od
}

active proctype poll()
{
idle:	do
	:: atomic { listed -> listed = false; judge(); c_code { poll_begins(); } }
#ifdef WRONG_ORDER
		cause = false;
#endif
		d_step { c_code { reclaim(); } }
		if
		/* The budget is used up, or a busy poll goes on. */
		:: atomic { judge(); c_code { poll_ends(); } }
			if
			:: d_step { !disabled -> listed = true }
			/* napi_disable() ends it. */
			:: d_step { disabled ->
				c_code { happened[CUT_OFF]++; }
				if
				:: missed -> missed = false; listed = true
				:: else -> scheduled = false
				fi }
			fi
		/* napi_complete_done(): an interrupt has come meanwhile, */
		:: d_step { missed -> missed = false; listed = true }
			atomic { judge(); c_code { poll_ends(); } }
		/* or the user defers interrupts (napi_defer_hard_irqs), */
		:: d_step { !missed -> scheduled = false; timer = true; c_code { happened[DEFERRED]++; } }
			atomic { judge(); c_code { poll_ends(); } }
		/* or the poll has ended. */
		:: d_step { !missed && ending + unmasking < OTHERS -> scheduled = false; ending++ }
		fi
	od
}

/* What comes after napi_complete_done(). The next poll may run meanwhile. */
active proctype after_poll()
{
	do
	:: atomic { ending -> ending--; unmasking++; judge(); c_code { poll_ends(); } }
	:: d_step { unmasking -> unmasking--; unmasked = true }
	od
}

/* Received frames, and resets. */
active proctype others()
{
idle:	do
	:: d_step { !cause -> cause = true }
	:: cause || !cause
	:: disabled = true;
		/* napi_disable() waits for the poll. */
		d_step { !scheduled -> scheduled = true; disabled = false; timer = false;
			c_code { reset(); } }
		/* napi_enable() and netif_wake_queue() */
		d_step { scheduled = false;
#ifndef WRONG_RESET
			stopped = false
#endif
			}
		unmasked = true
	od
}

#ifndef LIVENESS
/* When nothing happens unless the stack sends again, nothing is left. */
active proctype rest()
{
	do
	:: atomic { head == tail && !unreported && !(cause && unmasked) && !listed && !timer && !ending && !unmasking &&
		!promised && interrupt@idle && poll@idle && others@idle -> c_code {
			happened[REST]++;
			if (handover_is_pending(&now.h))
				uerror("frames stay in the ring that the device does not know of");
			if (now.h.filled)
				uerror("frames stay in the ring that the device has sent");
			if (now.stopped)
				uerror("the queue stays stopped");
		} }
	od
}
#endif
