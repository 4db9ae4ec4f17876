/* Holds the kernel's lock of network devices (RTNL): the kernel writes the features of `lo`, with the lock held, to a page that is not
 * there. Prints "held", and lets go after two seconds or at the end of stdin, whichever comes first: other programs need the lock. */
#include "page.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static void *ask(void *command)
{
	struct ifreq about = { .ifr_name = "lo" };

	about.ifr_data = command;
	ioctl(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), SIOCETHTOOL, &about);
	return NULL;
}

static void hold(void *page, int waits)
{
	char *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t asking;
	char byte;

	check(memory != MAP_FAILED && mremap(page, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, memory + 4096) != MAP_FAILED, "memory");
	/* The features themselves are written behind this, in the page. */
	struct ethtool_gfeatures *command = (void *)(memory + 4096 - sizeof(*command));

	*command = (struct ethtool_gfeatures){ .cmd = ETHTOOL_GFEATURES, .size = 2 };
	pthread_create(&asking, NULL, ask, command);
	check(read(waits, &byte, 1) == 1, "the fault");
	puts("held");
	fflush(stdout);
	pthread_join(asking, NULL);
}

int main(void)
{
	return hold_page(hold, 2000);
}
