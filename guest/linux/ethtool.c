// SPDX-License-Identifier: GPL-2.0
/*
 * What ethtool shows and sets. Counts, rings and moderation are the driver's;
 * a few counts are the device's.
 */
#include <linux/ethtool.h>
#include <linux/log2.h>
#include <linux/mii.h>

#include "ringway_e1000.h"

/* A count of 64 bits in struct rw_nic. */
struct count {
	const char *name;
	size_t offset;
};

#define COUNT(name, field) { name, offsetof(struct rw_nic, field) }

static const struct count sent_counts[] = {
	COUNT("tx_tail_writes", tx_counts.tail_writes),
	COUNT("tx_stops", tx_counts.stops),
	COUNT("tx_no_mapping", tx_counts.errors),
	COUNT("tx_xdp", tx_counts.xdp),
};

static const struct count received_counts[] = {
	COUNT("rx_tail_writes", rx_counts.tail_writes),
	COUNT("rx_copied", rx_counts.copied),
	COUNT("rx_errors", rx_counts.errors),
	COUNT("rx_bad_descriptors", rx_counts.bad),
	COUNT("rx_no_memory", rx_counts.no_memory),
	COUNT("rx_xdp_dropped", rx_counts.xdp_dropped),
	COUNT("rx_xdp_sent", rx_counts.xdp_sent),
	COUNT("rx_xdp_redirected", rx_counts.xdp_redirected),
};

static const char * const own_counts[] = {
	"interrupts", "polls", "misuses", "resets", "status_block", "combining",
};

#define DEVICE_COUNTS	ARRAY_SIZE(((struct rw_nic *)0)->device_counts)
#define ALL_COUNTS	(ARRAY_SIZE(sent_counts) + ARRAY_SIZE(received_counts) + \
			 ARRAY_SIZE(own_counts) + DEVICE_COUNTS)

/* Registers for -d, in this order. Reading them changes nothing. */
static const u32 shown_registers[] = {
	REG_CTRL, REG_STATUS, REG_EECD, REG_RCTL, REG_TCTL, REG_IMS, REG_ITR, REG_RXCSUM,
	REG_RDBAL, REG_RDBAH, REG_RDLEN, REG_RDH, REG_RDT, REG_RDTR, REG_RADV,
	REG_TDBAL, REG_TDBAH, REG_TDLEN, REG_TDH, REG_TDT, REG_TIDV, REG_TADV,
	REG_CSBAL, REG_CSBAH,
};

static void get_drvinfo(struct net_device *dev, struct ethtool_drvinfo *info)
{
	struct rw_nic *nic = netdev_priv(dev);

	strscpy(info->driver, KBUILD_MODNAME, sizeof(info->driver));
	strscpy(info->bus_info, pci_name(nic->pci), sizeof(info->bus_info));
}

static int get_sset_count(struct net_device *dev, int set)
{
	return set == ETH_SS_STATS ? ALL_COUNTS : -EOPNOTSUPP;
}

static void get_strings(struct net_device *dev, u32 set, u8 *data)
{
	int number;

	if (set != ETH_SS_STATS)
		return;
	for (number = 0; number < ARRAY_SIZE(sent_counts); number++)
		ethtool_sprintf(&data, "%s", sent_counts[number].name);
	for (number = 0; number < ARRAY_SIZE(received_counts); number++)
		ethtool_sprintf(&data, "%s", received_counts[number].name);
	for (number = 0; number < ARRAY_SIZE(own_counts); number++)
		ethtool_sprintf(&data, "%s", own_counts[number]);
	for (number = 0; number < DEVICE_COUNTS; number++)
		ethtool_sprintf(&data, "%s", rw_device_count_names[number]);
}

static u64 *add_counts(const struct rw_nic *nic, const struct u64_stats_sync *sync,
		       const struct count *counts, int number, u64 *data)
{
	unsigned int start;
	int at;

	do {
		start = u64_stats_fetch_begin(sync);
		for (at = 0; at < number; at++)
			data[at] = u64_stats_read((void *)nic + counts[at].offset);
	} while (u64_stats_fetch_retry(sync, start));
	return data + number;
}

static void get_ethtool_stats(struct net_device *dev, struct ethtool_stats *stats,
			      u64 *data)
{
	struct rw_nic *nic = netdev_priv(dev);

	data = add_counts(nic, &nic->tx_counts.sync, sent_counts,
			  ARRAY_SIZE(sent_counts), data);
	data = add_counts(nic, &nic->rx_counts.sync, received_counts,
			  ARRAY_SIZE(received_counts), data);
	*data++ = nic->interrupts;
	*data++ = nic->polls;
	*data++ = nic->misuses;
	*data++ = nic->resets;
	*data++ = !!nic->csb;
	*data++ = nic->tx && !nic->csb && READ_ONCE(nic->tx->handover.combining);
	if (netif_running(dev))
		rw_hw_count(nic);
	memcpy(data, nic->device_counts, sizeof(nic->device_counts));
}

static int get_regs_len(struct net_device *dev)
{
	return sizeof(shown_registers);
}

static void get_regs(struct net_device *dev, struct ethtool_regs *regs, void *data)
{
	struct rw_nic *nic = netdev_priv(dev);
	u32 *values = data;
	int number;

	regs->version = 1;
	for (number = 0; number < ARRAY_SIZE(shown_registers); number++)
		values[number] = rw_read(nic, shown_registers[number]);
}

static void get_ringparam(struct net_device *dev, struct ethtool_ringparam *rings,
			  struct kernel_ethtool_ringparam *kernel_rings,
			  struct netlink_ext_ack *extack)
{
	struct rw_nic *nic = netdev_priv(dev);

	rings->rx_max_pending = RW_RING_MOST;
	rings->tx_max_pending = RW_RING_MOST;
	rings->rx_pending = nic->setup.rx_count;
	rings->tx_pending = nic->setup.tx_count;
}

static int set_ringparam(struct net_device *dev, struct ethtool_ringparam *rings,
			 struct kernel_ethtool_ringparam *kernel_rings,
			 struct netlink_ext_ack *extack)
{
	struct rw_nic *nic = netdev_priv(dev);
	struct rw_setup setup = nic->setup;

	if (rings->rx_mini_pending || rings->rx_jumbo_pending)
		return -EINVAL;
	if (rings->rx_pending < RW_RING_LEAST || rings->tx_pending < RW_RING_LEAST ||
	    !is_power_of_2(rings->rx_pending) || !is_power_of_2(rings->tx_pending)) {
		NL_SET_ERR_MSG_MOD(extack, "rings have 128 to 4096 descriptors, a power of two");
		return -EINVAL;
	}
	if (setup.rx_count == rings->rx_pending && setup.tx_count == rings->tx_pending)
		return 0;
	setup.rx_count = rings->rx_pending;
	setup.tx_count = rings->tx_pending;
	return rw_exchange(nic, &setup);
}

static int get_coalesce(struct net_device *dev, struct ethtool_coalesce *coalesce,
			struct kernel_ethtool_coalesce *kernel_coalesce,
			struct netlink_ext_ack *extack)
{
	struct rw_nic *nic = netdev_priv(dev);

	coalesce->rx_coalesce_usecs = nic->moderation.usecs;
	coalesce->use_adaptive_rx_coalesce = nic->moderation.adaptive;
	return 0;
}

static int set_coalesce(struct net_device *dev, struct ethtool_coalesce *coalesce,
			struct kernel_ethtool_coalesce *kernel_coalesce,
			struct netlink_ext_ack *extack)
{
	struct rw_nic *nic = netdev_priv(dev);

	if (coalesce->rx_coalesce_usecs > U16_MAX * ITR_UNIT_NS / 1000) {
		NL_SET_ERR_MSG_MOD(extack, "rx-usecs is at most 16776");
		return -EINVAL;
	}
	nic->moderation.usecs = coalesce->rx_coalesce_usecs;
	nic->moderation.adaptive = coalesce->use_adaptive_rx_coalesce;
	if (netif_running(dev)) {
		/* Polls set it, too. */
		napi_disable(&nic->napi);
		rw_moderate(nic);
		napi_enable(&nic->napi);
		/* A poll that was wanted meanwhile. */
		rw_poll_now(nic);
	}
	return 0;
}

static int get_link_ksettings(struct net_device *dev, struct ethtool_link_ksettings *settings)
{
	struct rw_nic *nic = netdev_priv(dev);
	static const int speeds[] = { SPEED_10, SPEED_100, SPEED_1000, SPEED_1000 };
	u32 status = rw_read(nic, REG_STATUS);

	ethtool_link_ksettings_zero_link_mode(settings, supported);
	ethtool_link_ksettings_zero_link_mode(settings, advertising);
	ethtool_link_ksettings_add_link_mode(settings, supported, 1000baseT_Full);
	ethtool_link_ksettings_add_link_mode(settings, supported, Autoneg);
	ethtool_link_ksettings_add_link_mode(settings, supported, TP);
	ethtool_link_ksettings_add_link_mode(settings, advertising, 1000baseT_Full);
	ethtool_link_ksettings_add_link_mode(settings, advertising, Autoneg);
	settings->base.port = PORT_TP;
	settings->base.phy_address = 1;
	settings->base.autoneg = AUTONEG_ENABLE;
	settings->base.speed = SPEED_UNKNOWN;
	settings->base.duplex = DUPLEX_UNKNOWN;
	if (netif_carrier_ok(dev) && status != ~0u) {
		settings->base.speed = speeds[FIELD_GET(STATUS_SPEED, status)];
		settings->base.duplex = status & STATUS_FD ? DUPLEX_FULL : DUPLEX_HALF;
	}
	return 0;
}

/* Negotiates again. */
static int nway_reset(struct net_device *dev)
{
	struct rw_nic *nic = netdev_priv(dev);
	u16 control;
	int error;

	if (!netif_running(dev))
		return -EAGAIN;
	error = rw_phy(nic, MDIC_READ, MII_BMCR, &control);
	if (error)
		return error;
	control |= BMCR_ANENABLE | BMCR_ANRESTART;
	return rw_phy(nic, MDIC_WRITE, MII_BMCR, &control);
}

const struct ethtool_ops rw_ethtool_ops = {
	.supported_coalesce_params = ETHTOOL_COALESCE_RX_USECS |
				     ETHTOOL_COALESCE_USE_ADAPTIVE_RX,
	.get_drvinfo = get_drvinfo,
	.get_link = ethtool_op_get_link,
	.get_sset_count = get_sset_count,
	.get_strings = get_strings,
	.get_ethtool_stats = get_ethtool_stats,
	.get_regs_len = get_regs_len,
	.get_regs = get_regs,
	.get_ringparam = get_ringparam,
	.set_ringparam = set_ringparam,
	.get_coalesce = get_coalesce,
	.set_coalesce = set_coalesce,
	.get_link_ksettings = get_link_ksettings,
	.nway_reset = nway_reset,
	.get_ts_info = ethtool_op_get_ts_info,
};
