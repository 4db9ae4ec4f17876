/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Registers and descriptors of the 82540EM (Intel, PCI/PCI-X Family of Gigabit
 * Ethernet Controllers Software Developer's Manual, chapters 3 and 13).
 */
#ifndef RINGWAY_REGISTERS_H
#define RINGWAY_REGISTERS_H

#include <linux/bits.h>
#include <linux/types.h>

#define REG_CTRL	0x0000
#define   CTRL_ASDE	BIT(5)		/* find the speed */
#define   CTRL_SLU	BIT(6)		/* set the link up */
#define   CTRL_RST	BIT(26)
#define   CTRL_VME	BIT(30)		/* take tags off */
#define REG_STATUS	0x0008
#define   STATUS_FD	BIT(0)
#define   STATUS_LU	BIT(1)		/* the link is up */
#define   STATUS_SPEED	GENMASK(7, 6)
#define REG_EECD	0x0010
#define REG_MDIC	0x0020
#define   MDIC_REG	16
#define   MDIC_PHY1	BIT(21)
#define   MDIC_WRITE	BIT(26)
#define   MDIC_READ	BIT(27)
#define   MDIC_READY	BIT(28)
#define   MDIC_ERROR	BIT(30)
#define REG_VET		0x0038
#define REG_ICR		0x00c0
#define   INT_TXDW	BIT(0)		/* a descriptor was written back */
#define   INT_LSC	BIT(2)		/* the link has changed */
#define   INT_RXDMT0	BIT(4)		/* few receive descriptors are left */
#define   INT_RXO	BIT(6)		/* none are left */
#define   INT_RXT0	BIT(7)		/* received */
#define REG_ITR		0x00c4
#define   ITR_UNIT_NS	256
#define REG_ICS		0x00c8
#define REG_IMS		0x00d0
#define REG_IMC		0x00d8
#define REG_EIAC	0x00dc		/* with a status block: causes that a message clears */
#define REG_RCTL	0x0100
#define   RCTL_EN	BIT(1)
#define   RCTL_UPE	BIT(3)		/* all unicast addresses */
#define   RCTL_MPE	BIT(4)		/* all groups */
#define   RCTL_LPE	BIT(5)		/* long frames */
#define   RCTL_BAM	BIT(15)		/* broadcasts */
#define   RCTL_VFE	BIT(18)		/* only VLANs of the table */
#define   RCTL_SECRC	BIT(26)		/* without frame check sequence */
#define REG_TCTL	0x0400
#define   TCTL_EN	BIT(1)
#define   TCTL_PSP	BIT(3)		/* pad short frames */
#define   TCTL_CT	(15 << 4)
#define   TCTL_COLD	(64 << 12)
#define REG_TIPG	0x0410
#define   TIPG_COPPER	(8 | 8 << 10 | 6 << 20)
#define REG_RDBAL	0x2800
#define REG_RDBAH	0x2804
#define REG_RDLEN	0x2808
#define REG_RDH		0x2810
#define REG_RDT		0x2818
#define REG_RDTR	0x2820
#define REG_RADV	0x282c
#define REG_CSBAL	0x2830		/* address of a status block */
#define REG_CSBAH	0x2834
#define REG_TDBAL	0x3800
#define REG_TDBAH	0x3804
#define REG_TDLEN	0x3808
#define REG_TDH		0x3810
#define REG_TDT		0x3818
#define REG_TIDV	0x3820
#define REG_TADV	0x382c
#define REG_CRCERRS	0x4000
#define REG_RXERRC	0x400c
#define REG_MPC		0x4010		/* missed: no room in the device */
#define REG_RLEC	0x4040
#define REG_RNBC	0x40a0		/* waited for descriptors */
#define REG_RUC		0x40a4
#define REG_ROC		0x40ac
#define REG_RXCSUM	0x5000
#define   RXCSUM_IP	BIT(8)
#define   RXCSUM_TCPUDP	BIT(9)
#define REG_MTA(n)	(0x5200 + 4 * (n))
#define   MTA_WORDS	128
#define REG_RAL(n)	(0x5400 + 8 * (n))
#define REG_RAH(n)	(0x5404 + 8 * (n))
#define   RAH_AV	BIT(31)
#define   RA_COUNT	16
#define REG_VFTA(n)	(0x5600 + 4 * (n))
#define   VFTA_WORDS	128

/* Bytes of the registers' region that the driver uses. */
#define REG_BYTES	0x5800

/* A transmit descriptor: a context or a part of a frame (3.3.5 to 3.3.7). */
struct tx_descriptor {
	__le64 address;		/* context: starts and ends of checksums */
	__le32 command;
	__le32 status;
};

#define TX_LENGTH	GENMASK(19, 0)
#define TX_DATA		BIT(20)		/* not a context */
#define TX_EOP		BIT(24)		/* the last part */
#define TX_IFCS		BIT(25)		/* append the frame check sequence */
#define TX_TSE		BIT(26)		/* segment */
#define TX_RS		BIT(27)		/* report */
#define TX_DEXT		BIT(29)		/* not a legacy descriptor */
#define TX_VLE		BIT(30)		/* insert the tag */
#define TX_CONTEXT_TCP	BIT(24)
#define TX_CONTEXT_IP4	BIT(25)
/* In the second word. */
#define TX_DONE		BIT(0)
#define TX_IXSM		BIT(8)		/* insert the checksum of the IPv4 header */
#define TX_TXSM		BIT(9)		/* insert that of TCP or UDP */
#define TX_TAG		16

/* A receive descriptor (3.2.3). */
struct rx_descriptor {
	__le64 address;
	union {
		__le64 written;		/* by the device */
		struct {
			__le16 length;
			__le16 checksum;
			u8 status;
			u8 errors;
			__le16 tag;
		};
	};
};

#define RX_STATUS_DONE	BIT(0)
/* What the device has written, as one word. */
#define RX_LENGTH	GENMASK_ULL(15, 0)
#define RX_EOP		BIT_ULL(33)
#define RX_IXSM		BIT_ULL(34)	/* checksums were not looked at */
#define RX_VP		BIT_ULL(35)	/* a tag was taken off */
#define RX_TCPCS	BIT_ULL(37)
#define RX_ERROR_TCPE	BIT_ULL(45)
/* Errors for which the frame is not as it was sent. */
#define RX_ERROR_FRAME	(BIT_ULL(40) | BIT_ULL(41) | BIT_ULL(42) | BIT_ULL(44) | BIT_ULL(47))
#define RX_TAG		GENMASK_ULL(63, 48)

#endif
