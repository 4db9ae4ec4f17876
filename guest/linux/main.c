// SPDX-License-Identifier: GPL-2.0
/* Ringway e1000: a driver of the 82540EM for virtual machines. */
#include <linux/module.h>
#include <linux/pci.h>

static const struct pci_device_id rw_ids[] = {
	{ PCI_DEVICE_SUB(PCI_VENDOR_ID_INTEL, 0x100e, PCI_ANY_ID, 0x1101) },
	{ }
};
MODULE_DEVICE_TABLE(pci, rw_ids);

static int rw_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	return -ENODEV;
}

static struct pci_driver rw_driver = {
	.name = KBUILD_MODNAME,
	.id_table = rw_ids,
	.probe = rw_probe,
};
module_pci_driver(rw_driver);

MODULE_DESCRIPTION("Driver of Intel's 82540EM for virtual machines, with send combining and a status block");
MODULE_LICENSE("GPL");
