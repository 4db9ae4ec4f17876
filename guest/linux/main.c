// SPDX-License-Identifier: GPL-2.0
/*
 * The PCI function and the network device.
 */
#include <linux/etherdevice.h>
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/rtnetlink.h>

#include "ringway_e1000.h"

/* Time in which a device's misuse leads to one reset at most. */
#define RESET_EVERY	HZ
/* So many resets, each within this time of the one before, end the use of the status block. */
#define SOON_AGAIN		(30 * HZ)
#define RESETS_WITH_BLOCK	3

u32 rw_combine = HANDOVER_AUTO;
static bool use_csb = true;

static int set_combine(const char *value, const struct kernel_param *parameter)
{
	static const char * const modes[] = {
		[HANDOVER_AUTO] = "auto", [HANDOVER_ON] = "on", [HANDOVER_OFF] = "off",
	};
	int mode = sysfs_match_string(modes, value);

	if (mode < 0)
		return mode;
	rw_combine = mode;
	return 0;
}

static int get_combine(char *value, const struct kernel_param *parameter)
{
	return sysfs_emit(value, "%s\n", rw_combine == HANDOVER_AUTO ? "auto" :
			  rw_combine == HANDOVER_ON ? "on" : "off");
}

static const struct kernel_param_ops combine_ops = { .set = set_combine, .get = get_combine };
module_param_cb(combine, &combine_ops, NULL, 0444);
MODULE_PARM_DESC(combine, "Whether frames wait for the next interrupt before the device is told of them: auto (above a rate of frames; default), on, off");

static int set_csb(const char *value, const struct kernel_param *parameter)
{
	if (sysfs_streq(value, "auto"))
		use_csb = true;
	else if (sysfs_streq(value, "off"))
		use_csb = false;
	else
		return -EINVAL;
	return 0;
}

static int get_csb(char *value, const struct kernel_param *parameter)
{
	return sysfs_emit(value, "%s\n", use_csb ? "auto" : "off");
}

static const struct kernel_param_ops csb_ops = { .set = set_csb, .get = get_csb };
module_param_cb(csb, &csb_ops, NULL, 0444);
MODULE_PARM_DESC(csb, "Status block: auto (where the device offers one; default), off");

/* The device has done what it must not. Says so once, counts it, and resets it. */
void rw_misuse(struct rw_nic *nic, const char *format, ...)
{
	unsigned long delay = 0, now = jiffies;
	struct va_format message;
	va_list arguments;

	nic->misuses++;
	if (!test_and_set_bit(RW_TOLD, &nic->flags)) {
		va_start(arguments, format);
		message.fmt = format;
		message.va = &arguments;
		netdev_err(nic->dev, "the device misbehaves and is reset: %pV\n", &message);
		va_end(arguments);
	}
	if (time_before(now, nic->last_reset + RESET_EVERY))
		delay = nic->last_reset + RESET_EVERY - now;
	schedule_delayed_work(&nic->reset_work, delay);
}

/* Lets the device run with the rings that are there. Under RTNL. */
static int start_device(struct rw_nic *nic)
{
	u16 subsystem;
	int error;

	nic->last_reset = jiffies;
	/* A reset that was wanted is this one. */
	cancel_delayed_work(&nic->reset_work);
	error = rw_hw_reset(nic);
	if (error)
		return error;
	/* It may have come back without what it offered. */
	pci_read_config_word(nic->pci, PCI_SUBSYSTEM_ID, &subsystem);
	nic->csb = nic->csb_wanted && subsystem == RW_SUBSYSTEM_CSB ? nic->block : NULL;
	if (nic->csb)
		csb_begin(nic->csb);
	error = rw_rx_begin(nic);
	if (error)
		return error;
	rw_tx_begin(nic);
	nic->moderation.busy = false;
	nic->moderation.window = jiffies;
	nic->moderation.now = rw_moderation_register(&nic->moderation);
	rw_hw_start(nic);
	rw_rx_give(nic);
	napi_enable(&nic->napi);
	netif_addr_lock_bh(nic->dev);
	rw_hw_set_filters(nic);
	netif_addr_unlock_bh(nic->dev);
	rw_tx_open(nic, true);
	set_bit(RW_STARTED, &nic->flags);
	rw_write(nic, REG_IMS, nic->causes);
	/* The handler may have been called for another device before. */
	rw_poll_now(nic);
	schedule_work(&nic->link_work);
	rw_watch(&nic->watch);
	return 0;
}

/*
 * Stops the device. Its rings stay. Under RTNL. Afterwards no poll runs, no
 * frame comes in, and neither timer nor link_work is under way.
 */
static void stop_device(struct rw_nic *nic)
{
	rw_tx_open(nic, false);
	napi_disable(&nic->napi);
	/* A poll goes on for a moment when it has said that it is complete. */
	synchronize_net();
	clear_bit(RW_STARTED, &nic->flags);
	rw_hw_stop(nic);
	synchronize_irq(nic->pci->irq);
	cancel_work_sync(&nic->link_work);
	netif_carrier_off(nic->dev);
	/* No access to memory from here on. */
	if (rw_hw_reset(nic) && net_ratelimit())
		netdev_info(nic->dev, "the device does not answer\n");
	rw_tx_drop(nic);
	rw_rx_drop(nic);
	rw_delete_timer(&nic->reaper);
	rw_delete_timer(&nic->watch);
}

/*
 * Starts the device again. If that fails, the interface has no carrier, and
 * reset_work tries again later, unless the device is gone.
 */
static int start_again(struct rw_nic *nic)
{
	int error = start_device(nic);

	if (!error)
		return 0;
	if (net_ratelimit())
		netdev_err(nic->dev, "the device does not start: %pe\n", ERR_PTR(error));
	/* As after start_device(), for the next stop_device(). */
	napi_enable(&nic->napi);
	if (error != -ENODEV)
		schedule_delayed_work(&nic->reset_work, RESET_EVERY);
	return error;
}

/* The rings are gone for rw_xdp_xmit(), too, when this returns. */
static struct rw_tx *remove_tx(struct rw_nic *nic)
{
	struct netdev_queue *queue = netdev_get_tx_queue(nic->dev, 0);
	struct rw_tx *tx = nic->tx;

	__netif_tx_lock_bh(queue);
	nic->tx = NULL;
	__netif_tx_unlock_bh(queue);
	return tx;
}

static void free_rings(struct rw_nic *nic)
{
	rw_tx_free(nic, remove_tx(nic));
	rw_rx_free(nic, nic->rx);
	nic->rx = NULL;
}

/*
 * Exchanges rings and what they depend on. All memory is there before anything
 * changes. Under RTNL.
 */
int rw_exchange(struct rw_nic *nic, const struct rw_setup *setup)
{
	struct rw_tx *tx, *old_tx;
	struct rw_rx *rx, *old_rx;
	int error;

	if (!netif_running(nic->dev)) {
		nic->setup = *setup;
		WRITE_ONCE(nic->dev->mtu, setup->mtu);
		return 0;
	}
	tx = rw_tx_make(nic, setup->tx_count);
	rx = rw_rx_make(nic, setup);
	if (!tx || !rx) {
		rw_tx_free(nic, tx);
		rw_rx_free(nic, rx);
		return -ENOMEM;
	}
	stop_device(nic);
	old_tx = remove_tx(nic);
	old_rx = nic->rx;
	nic->tx = tx;
	nic->rx = rx;
	nic->setup = *setup;
	WRITE_ONCE(nic->dev->mtu, setup->mtu);
	error = start_again(nic);
	rw_tx_free(nic, old_tx);
	rw_rx_free(nic, old_rx);
	return error;
}

static int open(struct net_device *dev)
{
	struct rw_nic *nic = netdev_priv(dev);
	int error = -ENOMEM;

	netif_carrier_off(dev);
	clear_bit(RW_TOLD, &nic->flags);
	nic->csb_wanted = use_csb;
	nic->soon_again = 0;
	nic->tx = rw_tx_make(nic, nic->setup.tx_count);
	nic->rx = rw_rx_make(nic, &nic->setup);
	if (!nic->tx || !nic->rx)
		goto no_rings;
	error = request_irq(nic->pci->irq, rw_interrupt,
			    nic->pci->msi_enabled ? 0 : IRQF_SHARED, dev->name, nic);
	if (error)
		goto no_rings;
	error = start_device(nic);
	if (error)
		goto not_up;
	return 0;

not_up:
	free_irq(nic->pci->irq, nic);
no_rings:
	free_rings(nic);
	return error;
}

static int stop(struct net_device *dev)
{
	struct rw_nic *nic = netdev_priv(dev);

	if (!test_bit(RW_SUSPENDED, &nic->flags))
		stop_device(nic);
	free_irq(nic->pci->irq, nic);
	free_rings(nic);
	return 0;
}

static void link_work(struct work_struct *work)
{
	/* A link may flap for long. */
	static DEFINE_RATELIMIT_STATE(messages, 60 * HZ, 4);
	struct rw_nic *nic = container_of(work, struct rw_nic, link_work);
	bool is_up = rw_hw_link(nic);

	if (is_up == netif_carrier_ok(nic->dev))
		return;
	if (is_up)
		netif_carrier_on(nic->dev);
	else
		netif_carrier_off(nic->dev);
	if (__ratelimit(&messages))
		netdev_info(nic->dev, "link is %s\n", is_up ? "up" : "down");
}

/* A device that has to be reset again and again may do better without a status block. */
static void give_up_block(struct rw_nic *nic)
{
	if (!nic->csb)
		return;
	if (time_after(jiffies, nic->last_reset + SOON_AGAIN))
		nic->soon_again = 0;
	if (nic->soon_again++ < RESETS_WITH_BLOCK)
		return;
	netdev_err(nic->dev, "goes on without the status block\n");
	nic->csb_wanted = false;
}

static void reset_work(struct work_struct *work)
{
	struct rw_nic *nic = container_of(to_delayed_work(work), struct rw_nic, reset_work);

	rtnl_lock();
	if (netif_running(nic->dev) && netif_device_present(nic->dev)) {
		nic->resets++;
		give_up_block(nic);
		stop_device(nic);
		start_again(nic);
	}
	rtnl_unlock();
}

static void tx_timeout(struct net_device *dev, unsigned int queue)
{
	struct rw_nic *nic = netdev_priv(dev);

	schedule_delayed_work(&nic->reset_work, 0);
}

static void get_stats64(struct net_device *dev, struct rtnl_link_stats64 *stats)
{
	struct rw_nic *nic = netdev_priv(dev);
	const struct rw_tx_counts *tx = &nic->tx_counts;
	const struct rw_rx_counts *rx = &nic->rx_counts;
	unsigned int start;

	do {
		start = u64_stats_fetch_begin(&tx->sync);
		stats->tx_packets = u64_stats_read(&tx->packets);
		stats->tx_bytes = u64_stats_read(&tx->bytes);
		stats->tx_errors = u64_stats_read(&tx->errors);
	} while (u64_stats_fetch_retry(&tx->sync, start));
	do {
		start = u64_stats_fetch_begin(&rx->sync);
		stats->rx_packets = u64_stats_read(&rx->packets);
		stats->rx_bytes = u64_stats_read(&rx->bytes);
		stats->rx_errors = u64_stats_read(&rx->errors) + u64_stats_read(&rx->bad);
		stats->rx_dropped = u64_stats_read(&rx->no_memory);
	} while (u64_stats_fetch_retry(&rx->sync, start));
	/* As they were when ethtool last asked: a register costs an exit. */
	stats->rx_missed_errors = READ_ONCE(nic->device_counts[0]);
}

static void set_rx_mode(struct net_device *dev)
{
	rw_hw_set_filters(netdev_priv(dev));
}

static int set_mac_address(struct net_device *dev, void *data)
{
	struct rw_nic *nic = netdev_priv(dev);
	int error = eth_prepare_mac_addr_change(dev, data);

	if (error)
		return error;
	eth_commit_mac_addr_change(dev, data);
	if (netif_running(dev))
		rw_hw_set_address(nic);
	return 0;
}

static int change_mtu(struct net_device *dev, int mtu)
{
	struct rw_nic *nic = netdev_priv(dev);
	struct rw_setup setup = nic->setup;

	if (setup.xdp && mtu > ETH_DATA_LEN) {
		netdev_warn(dev, "an XDP program is loaded: the MTU is at most %u\n",
			    ETH_DATA_LEN);
		return -EINVAL;
	}
	setup.mtu = mtu;
	return rw_exchange(nic, &setup);
}

static int set_vlan(struct net_device *dev, u16 vlan, bool on)
{
	struct rw_nic *nic = netdev_priv(dev);

	if (on)
		set_bit(vlan, nic->vlans);
	else
		clear_bit(vlan, nic->vlans);
	if (!netif_running(dev) || !netif_device_present(dev))
		return 0;
	rw_hw_set_vlans(nic, vlan / 32);
	netif_addr_lock_bh(dev);
	rw_hw_set_filters(nic);
	netif_addr_unlock_bh(dev);
	return 0;
}

static int vlan_rx_add_vid(struct net_device *dev, __be16 proto, u16 vlan)
{
	return set_vlan(dev, vlan, true);
}

static int vlan_rx_kill_vid(struct net_device *dev, __be16 proto, u16 vlan)
{
	return set_vlan(dev, vlan, false);
}

static int set_features(struct net_device *dev, netdev_features_t features)
{
	struct rw_nic *nic = netdev_priv(dev);

	dev->features = features;
	if (!netif_running(dev))
		return 0;
	rw_hw_set_features(nic);
	netif_addr_lock_bh(dev);
	rw_hw_set_filters(nic);
	netif_addr_unlock_bh(dev);
	return 0;
}

static int bpf(struct net_device *dev, struct netdev_bpf *command)
{
	struct rw_nic *nic = netdev_priv(dev);
	struct rw_setup setup = nic->setup;
	struct bpf_prog *old = setup.xdp;
	int error;

	if (command->command != XDP_SETUP_PROG)
		return -EINVAL;
	if (command->prog && dev->mtu > ETH_DATA_LEN) {
		NL_SET_ERR_MSG_MOD(command->extack, "XDP needs an MTU of at most 1500");
		return -EINVAL;
	}
	setup.xdp = command->prog;
	error = rw_exchange(nic, &setup);
	if (error && nic->setup.xdp != command->prog)
		return error;
	if (old)
		bpf_prog_put(old);
	return 0;
}

static const struct net_device_ops netdev_ops = {
	.ndo_open = open,
	.ndo_stop = stop,
	.ndo_start_xmit = rw_start_xmit,
	.ndo_features_check = rw_features_check,
	.ndo_get_stats64 = get_stats64,
	.ndo_set_rx_mode = set_rx_mode,
	.ndo_set_mac_address = set_mac_address,
	.ndo_validate_addr = eth_validate_addr,
	.ndo_change_mtu = change_mtu,
	.ndo_tx_timeout = tx_timeout,
	.ndo_vlan_rx_add_vid = vlan_rx_add_vid,
	.ndo_vlan_rx_kill_vid = vlan_rx_kill_vid,
	.ndo_set_features = set_features,
	.ndo_bpf = bpf,
	.ndo_xdp_xmit = rw_xdp_xmit,
};

static void set_up_device(struct rw_nic *nic)
{
	struct net_device *dev = nic->dev;

	dev->netdev_ops = &netdev_ops;
	dev->ethtool_ops = &rw_ethtool_ops;
	dev->watchdog_timeo = 5 * HZ;
	dev->min_mtu = ETH_MIN_MTU;
	dev->max_mtu = RW_MTU_MOST;
	dev->hw_features = NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_TSO | NETIF_F_TSO6 |
			   NETIF_F_RXCSUM | NETIF_F_HW_VLAN_CTAG_RX |
			   NETIF_F_HW_VLAN_CTAG_TX | NETIF_F_HW_VLAN_CTAG_FILTER;
	dev->features = dev->hw_features | NETIF_F_HIGHDMA;
	dev->vlan_features = NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_TSO | NETIF_F_TSO6 |
			     NETIF_F_HIGHDMA;
	dev->priv_flags |= IFF_UNICAST_FLT;
	rw_set_xdp_features(dev);
	nic->setup.tx_count = RW_RING_DEFAULT;
	nic->setup.rx_count = RW_RING_DEFAULT;
	nic->setup.mtu = dev->mtu;
	nic->moderation.usecs = RW_USECS_DEFAULT;
	nic->moderation.adaptive = true;
	nic->causes = INT_TXDW | INT_LSC | INT_RXDMT0 | INT_RXO | INT_RXT0;
	nic->csb_wanted = use_csb;
	u64_stats_init(&nic->tx_counts.sync);
	u64_stats_init(&nic->rx_counts.sync);
	mutex_init(&nic->device_counts_lock);
	INIT_WORK(&nic->link_work, link_work);
	INIT_DELAYED_WORK(&nic->reset_work, reset_work);
	timer_setup(&nic->reaper, rw_reap, 0);
	timer_setup(&nic->watch, rw_watch, 0);
	netif_napi_add(dev, &nic->napi, rw_poll);
}

static int probe(struct pci_dev *pci, const struct pci_device_id *id)
{
	u8 address[ETH_ALEN];
	struct net_device *dev;
	struct rw_nic *nic;
	int error;

	error = pcim_enable_device(pci);
	if (error)
		return error;
	error = dma_set_mask_and_coherent(&pci->dev, DMA_BIT_MASK(64));
	if (error)
		error = dma_set_mask_and_coherent(&pci->dev, DMA_BIT_MASK(32));
	if (error)
		return dev_err_probe(&pci->dev, error, "no DMA\n");
	if (pci_resource_len(pci, 0) < REG_BYTES)
		return dev_err_probe(&pci->dev, -ENODEV, "too few registers\n");
	error = pcim_iomap_regions(pci, BIT(0), KBUILD_MODNAME);
	if (error)
		return dev_err_probe(&pci->dev, error, "no registers\n");

	dev = devm_alloc_etherdev(&pci->dev, sizeof(*nic));
	if (!dev)
		return -ENOMEM;
	SET_NETDEV_DEV(dev, &pci->dev);
	nic = netdev_priv(dev);
	nic->dev = dev;
	nic->pci = pci;
	nic->registers = pcim_iomap_table(pci)[0];
	nic->block = dmam_alloc_coherent(&pci->dev, CSB_BYTES, &nic->block_dma, GFP_KERNEL);
	if (!nic->block)
		return -ENOMEM;
	error = rw_hw_reset(nic);
	if (error)
		return dev_err_probe(&pci->dev, error, "the device does not reset itself\n");
	error = rw_hw_address(nic, address);
	if (error)
		return dev_err_probe(&pci->dev, error, "the device has no address\n");
	eth_hw_addr_set(dev, address);
	ether_addr_copy(dev->perm_addr, address);
	pci_set_master(pci);
	pci_set_drvdata(pci, nic);
	/* Plain NICs have errors in their messages, or have none. */
	if (pci->subsystem_device == RW_SUBSYSTEM_CSB)
		pci_alloc_irq_vectors(pci, 1, 1, PCI_IRQ_MSI | PCI_IRQ_INTX);
	set_up_device(nic);
	netif_carrier_off(dev);
	error = register_netdev(dev);
	if (error)
		return error;
	netdev_info(dev, "%s, status block %s, send combining %s\n", dev_name(&pci->dev),
		    !nic->csb_wanted ? "off" :
		    pci->subsystem_device == RW_SUBSYSTEM_CSB ? "on" : "not offered",
		    rw_combine == HANDOVER_AUTO ? "auto" :
		    rw_combine == HANDOVER_ON ? "on" : "off");
	return 0;
}

static void remove(struct pci_dev *pci)
{
	struct rw_nic *nic = pci_get_drvdata(pci);

	unregister_netdev(nic->dev);
	cancel_delayed_work_sync(&nic->reset_work);
	netif_napi_del(&nic->napi);
	pci_free_irq_vectors(pci);
	pci_clear_master(pci);
}

/* For a reboot or another kernel: no access to memory any more. */
static void shutdown(struct pci_dev *pci)
{
	struct rw_nic *nic = pci_get_drvdata(pci);

	rtnl_lock();
	netif_device_detach(nic->dev);
	if (netif_running(nic->dev))
		dev_close(nic->dev);
	rtnl_unlock();
	pci_clear_master(pci);
}

static int suspend(struct device *device)
{
	struct rw_nic *nic = dev_get_drvdata(device);

	rtnl_lock();
	netif_device_detach(nic->dev);
	if (netif_running(nic->dev)) {
		stop_device(nic);
		set_bit(RW_SUSPENDED, &nic->flags);
	}
	rtnl_unlock();
	return 0;
}

static int resume(struct device *device)
{
	struct rw_nic *nic = dev_get_drvdata(device);
	int error = 0;

	rtnl_lock();
	clear_bit(RW_SUSPENDED, &nic->flags);
	/* This wakes the queue, but the ring is not open. */
	netif_device_attach(nic->dev);
	if (netif_running(nic->dev))
		error = start_again(nic);
	rtnl_unlock();
	return error;
}

static DEFINE_SIMPLE_DEV_PM_OPS(power, suspend, resume);

static const struct pci_device_id ids[] = {
	{ PCI_DEVICE_SUB(PCI_VENDOR_ID_INTEL, 0x100e, PCI_ANY_ID, RW_SUBSYSTEM_CSB) },
	{ }
};
MODULE_DEVICE_TABLE(pci, ids);

static struct pci_driver rw_driver = {
	.name = KBUILD_MODNAME,
	.id_table = ids,
	.probe = probe,
	.remove = remove,
	.shutdown = shutdown,
	.driver.pm = pm_sleep_ptr(&power),
};
module_pci_driver(rw_driver);

MODULE_DESCRIPTION("Driver of Intel's 82540EM for virtual machines, with send combining and a status block");
MODULE_LICENSE("GPL");
