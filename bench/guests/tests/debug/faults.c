// SPDX-License-Identifier: GPL-2.0
/* Commits the error that its parameter names. */
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>

static char *fault;
module_param(fault, charp, 0);

static DEFINE_MUTEX(first);
static DEFINE_MUTEX(second);
static DEFINE_SPINLOCK(spin);

static int __init faults_init(void)
{
	int length = 40;
	char *memory = kmalloc(length, GFP_KERNEL);

	if (!memory)
		return -ENOMEM;
	OPTIMIZER_HIDE_VAR(length);
	if (!strcmp(fault, "overrun")) {
		memory[length] = 1;
	} else if (!strcmp(fault, "order")) {
		mutex_lock(&first);
		mutex_lock(&second);
		mutex_unlock(&second);
		mutex_unlock(&first);
		mutex_lock(&second);
		mutex_lock(&first);
		mutex_unlock(&first);
		mutex_unlock(&second);
	} else if (!strcmp(fault, "sleep")) {
		spin_lock(&spin);
		kfree(kmalloc(length, GFP_KERNEL));
		spin_unlock(&spin);
	} else if (!strcmp(fault, "leak")) {
		memory = NULL;
	}
	kfree(memory);
	return 0;
}

static void __exit faults_exit(void)
{
}

module_init(faults_init);
module_exit(faults_exit);
MODULE_LICENSE("GPL");
