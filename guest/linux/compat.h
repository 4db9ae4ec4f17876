/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between the kernels that the driver is built for: Linux 6.1 and
 * newer.
 */
#ifndef RINGWAY_COMPAT_H
#define RINGWAY_COMPAT_H

#include <linux/netdevice.h>
#include <linux/pci.h>
#include <linux/timer.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 6, 0)
#include <net/page_pool/helpers.h>
#else
#include <net/page_pool.h>
#endif

#ifndef PCI_IRQ_INTX
#define PCI_IRQ_INTX PCI_IRQ_LEGACY
#endif

static inline void rw_delete_timer(struct timer_list *timer)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
	timer_delete_sync(timer);
#else
	del_timer_sync(timer);
#endif
}

/* Tells which parts of XDP the driver has. */
static inline void rw_set_xdp_features(struct net_device *dev)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	dev->xdp_features = NETDEV_XDP_ACT_BASIC | NETDEV_XDP_ACT_REDIRECT |
			    NETDEV_XDP_ACT_NDO_XMIT;
#endif
}

#endif
