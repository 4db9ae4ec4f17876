// SPDX-License-Identifier: GPL-2.0
/*
 * The registers: reset, addresses, filters, link, statistics.
 */
#include <linux/delay.h>
#include <linux/etherdevice.h>
#include <linux/iopoll.h>

#include "ringway_e1000.h"

#define RESET_USECS	100000
#define PHY_USECS	10000

static const u32 device_count_registers[] = {
	REG_MPC, REG_RNBC, REG_CRCERRS, REG_RXERRC, REG_RUC, REG_ROC,
};

const char *const rw_device_count_names[] = {
	"device_missed", "device_no_buffers", "device_crc_errors",
	"device_rx_errors", "device_undersize", "device_oversize",
};

/* Ends interrupts and all access to memory. */
void rw_hw_stop(struct rw_nic *nic)
{
	rw_write(nic, REG_IMC, ~0u);
	rw_write(nic, REG_RCTL, 0);
	rw_write(nic, REG_TCTL, TCTL_PSP);
	if (nic->pci->subsystem_device == RW_SUBSYSTEM_CSB) {
		/* A reset does not end the mode. The block may be another driver's. */
		rw_write(nic, REG_CSBAH, 0);
		rw_write(nic, REG_CSBAL, 0);
	}
	/* The device has done all of it when the answer comes. */
	rw_read(nic, REG_STATUS);
}

int rw_hw_reset(struct rw_nic *nic)
{
	u32 control;

	rw_hw_stop(nic);
	control = rw_read(nic, REG_CTRL);
	if (control == ~0u)
		return -ENODEV;
	rw_write(nic, REG_CTRL, control | CTRL_RST);
	/* A real one must not be accessed for 1 us (13.4.1). */
	udelay(2);
	if (read_poll_timeout(rw_read, control, !(control & CTRL_RST), 1000,
			      RESET_USECS, false, nic, REG_CTRL))
		return control == ~0u ? -ENODEV : -ETIMEDOUT;
	rw_write(nic, REG_IMC, ~0u);
	rw_read(nic, REG_ICR);
	memset(nic->groups, 0, sizeof(nic->groups));
	memset(nic->addresses, 0, sizeof(nic->addresses));
	return 0;
}

/* The address that the device has taken from its EEPROM after a reset. */
int rw_hw_address(struct rw_nic *nic, u8 *address)
{
	u32 low, high;
	int tries;

	/* The device reads the EEPROM in its own time (5.6.1). */
	for (tries = 0; tries < 20; tries++) {
		low = rw_read(nic, REG_RAL(0));
		high = rw_read(nic, REG_RAH(0));
		if (low == ~0u && high == ~0u)
			return -ENODEV;
		put_unaligned_le32(low, address);
		put_unaligned_le16(high, address + 4);
		if (high & RAH_AV && is_valid_ether_addr(address))
			return 0;
		usleep_range(1000, 2000);
	}
	return -EADDRNOTAVAIL;
}

static void set_address(struct rw_nic *nic, int place, const u8 *address)
{
	u64 value = 0;

	if (address)
		value = get_unaligned_le32(address) |
			(u64)(get_unaligned_le16(address + 4) | RAH_AV) << 32;
	if (nic->addresses[place] == value)
		return;
	nic->addresses[place] = value;
	/* Never valid with half of another address. */
	rw_write(nic, REG_RAH(place), 0);
	if (!value)
		return;
	rw_write(nic, REG_RAL(place), lower_32_bits(value));
	rw_write(nic, REG_RAH(place), upper_32_bits(value));
}

void rw_hw_set_address(struct rw_nic *nic)
{
	set_address(nic, 0, nic->dev->dev_addr);
}

/* Which frames the device receives. Under the lock of the device's addresses. */
void rw_hw_set_filters(struct rw_nic *nic)
{
	const struct net_device *dev = nic->dev;
	u32 control = RCTL_EN | RCTL_BAM | RCTL_SECRC;
	struct netdev_hw_addr *address;
	u32 groups[MTA_WORDS] = {};
	int place = 1, word;

	if (dev->mtu > ETH_DATA_LEN)
		control |= RCTL_LPE;
	if (dev->flags & IFF_PROMISC)
		control |= RCTL_UPE | RCTL_MPE;
	else if (!bitmap_empty(nic->vlans, VLAN_N_VID) &&
		 dev->features & NETIF_F_HW_VLAN_CTAG_FILTER)
		control |= RCTL_VFE;
	if (dev->flags & IFF_ALLMULTI)
		control |= RCTL_MPE;
	if (netdev_uc_count(dev) >= RA_COUNT)
		control |= RCTL_UPE;

	netdev_for_each_uc_addr(address, dev)
		if (place < RA_COUNT)
			set_address(nic, place++, address->addr);
	while (place < RA_COUNT)
		set_address(nic, place++, NULL);
	netdev_for_each_mc_addr(address, dev) {
		/* The upper twelve bits of the address (13.5.1). */
		u32 bit = get_unaligned_le16(address->addr + 4) >> 4;

		groups[bit / 32] |= BIT(bit % 32);
	}
	for (word = 0; word < MTA_WORDS; word++) {
		if (nic->groups[word] == groups[word])
			continue;
		nic->groups[word] = groups[word];
		rw_write(nic, REG_MTA(word), groups[word]);
	}
	rw_write(nic, REG_RCTL, control);
}

static void set_vlan(struct rw_nic *nic, int word)
{
	u32 value = 0;
	int bit;

	for (bit = 0; bit < 32; bit++)
		if (test_bit(word * 32 + bit, nic->vlans))
			value |= BIT(bit);
	rw_write(nic, REG_VFTA(word), value);
}

/* The VLANs of word @word of the table, or of all. */
void rw_hw_set_vlans(struct rw_nic *nic, int word)
{
	if (word >= 0) {
		set_vlan(nic, word);
		return;
	}
	for (word = 0; word < VFTA_WORDS; word++)
		set_vlan(nic, word);
}

/* Whether tags are taken off. */
void rw_hw_set_features(struct rw_nic *nic)
{
	u32 control = rw_read(nic, REG_CTRL) & ~(CTRL_VME | CTRL_RST);

	if (nic->dev->features & NETIF_F_HW_VLAN_CTAG_RX)
		control |= CTRL_VME;
	rw_write(nic, REG_CTRL, control | CTRL_SLU | CTRL_ASDE);
	rw_write(nic, REG_RXCSUM, nic->dev->features & NETIF_F_RXCSUM ?
				  RXCSUM_IP | RXCSUM_TCPUDP : 0);
}

/* Gives the device its rings, after a reset. It receives when its filters are set. */
void rw_hw_start(struct rw_nic *nic)
{
	const struct rw_tx *tx = nic->tx;
	const struct rw_rx *rx = nic->rx;

	rw_hw_set_features(nic);
	rw_write(nic, REG_VET, ETH_P_8021Q);
	rw_write(nic, REG_TDLEN, tx->count * sizeof(*tx->ring));
	rw_write(nic, REG_TDBAH, upper_32_bits(tx->dma));
	rw_write(nic, REG_TDBAL, lower_32_bits(tx->dma));
	rw_write(nic, REG_TDH, 0);
	rw_write(nic, REG_TDT, 0);
	rw_write(nic, REG_TIPG, TIPG_COPPER);
	rw_write(nic, REG_TIDV, 0);
	rw_write(nic, REG_TADV, 0);
	rw_write(nic, REG_RDTR, 0);
	rw_write(nic, REG_RADV, 0);
	rw_write(nic, REG_RDLEN, rx->count * sizeof(*rx->ring));
	rw_write(nic, REG_RDBAH, upper_32_bits(rx->dma));
	rw_write(nic, REG_RDBAL, lower_32_bits(rx->dma));
	rw_write(nic, REG_RDH, 0);
	rw_write(nic, REG_RDT, 0);
	rw_write(nic, REG_ITR, nic->moderation.now);
	if (nic->csb) {
		/* The low word last: it begins the mode. */
		rw_write(nic, REG_CSBAH, upper_32_bits(nic->block_dma));
		rw_write(nic, REG_CSBAL, lower_32_bits(nic->block_dma));
		if (nic->pci->msi_enabled)
			rw_write(nic, REG_EIAC, nic->causes & ~INT_LSC);
	}
	rw_write(nic, REG_TCTL, TCTL_EN | TCTL_PSP | TCTL_CT | TCTL_COLD);
	rw_hw_set_address(nic);
	if (!bitmap_empty(nic->vlans, VLAN_N_VID))
		rw_hw_set_vlans(nic, -1);
}

bool rw_hw_link(struct rw_nic *nic)
{
	u32 status = rw_read(nic, REG_STATUS);

	return status != ~0u && status & STATUS_LU;
}

/* Adds what the device has counted since the last time. Reading clears. */
void rw_hw_count(struct rw_nic *nic)
{
	int number;

	BUILD_BUG_ON(ARRAY_SIZE(device_count_registers) != ARRAY_SIZE(nic->device_counts));
	mutex_lock(&nic->device_counts_lock);
	for (number = 0; number < ARRAY_SIZE(device_count_registers); number++) {
		u32 value = rw_read(nic, device_count_registers[number]);

		/* A device that is gone has counted nothing. */
		if (value == ~0u)
			break;
		nic->device_counts[number] += value;
	}
	mutex_unlock(&nic->device_counts_lock);
}

/* Reads or writes a register of the PHY. Under RTNL. */
int rw_phy(struct rw_nic *nic, u32 command, u32 reg, u16 *value)
{
	u32 answer;

	rw_write(nic, REG_MDIC, command | MDIC_PHY1 | reg << MDIC_REG |
				(command == MDIC_WRITE ? *value : 0));
	if (read_poll_timeout(rw_read, answer, answer & MDIC_READY, 50,
			      PHY_USECS, false, nic, REG_MDIC) ||
	    answer == ~0u || answer & MDIC_ERROR)
		return -EIO;
	if (command == MDIC_READ)
		*value = answer;
	return 0;
}
