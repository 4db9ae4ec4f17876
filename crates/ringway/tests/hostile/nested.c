/* Holds the lock of the kernel that adding one epoll instance to another takes (epnested_mutex), as any user can by a page whose fault is
 * not answered. Prints "held", and lets go after two seconds or at the end of stdin, whichever comes first. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int inner;
static struct epoll_event *page;
static volatile pid_t nester;

static void *wait_for_events(void *unused)
{
	epoll_wait(inner, page, 1, -1);
	return unused;
}

static void *nest(void *unused)
{
	struct epoll_event event = { .events = EPOLLIN };

	nester = gettid();
	epoll_ctl(epoll_create1(EPOLL_CLOEXEC), EPOLL_CTL_ADD, inner, &event);
	return unused;
}

static void check(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

/* Returns the state of a thread of this process (proc_pid_stat(5)). */
static char state(pid_t thread)
{
	char path[64], line[256] = "", *end;
	int file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
	file = open(path, O_RDONLY | O_CLOEXEC);
	check(file >= 0 && read(file, line, sizeof(line) - 1) > 0, path);
	close(file);
	end = strrchr(line, ')');
	return end ? end[2] : 0;
}

int main(void)
{
	long size = sysconf(_SC_PAGESIZE);
	int faults = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register of = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_zeropage answer = { 0 };
	struct pollfd fault = { .fd = faults, .events = POLLIN }, end = { .fd = 0, .events = POLLIN };
	struct epoll_event event = { .events = EPOLLIN };
	pthread_t threads[2];

	check(faults >= 0, "userfaultfd");
	check(ioctl(faults, UFFDIO_API, &api) == 0, "UFFDIO_API");
	page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(page != MAP_FAILED, "mmap");
	of.range.start = (unsigned long)page;
	of.range.len = size;
	check(ioctl(faults, UFFDIO_REGISTER, &of) == 0, "UFFDIO_REGISTER");

	inner = epoll_create1(EPOLL_CLOEXEC);
	check(epoll_ctl(inner, EPOLL_CTL_ADD, eventfd(1, EFD_CLOEXEC), &event) == 0, "epoll_ctl");
	/* It has the lock of its own instance when it touches the page. */
	pthread_create(&threads[0], NULL, wait_for_events, NULL);
	check(poll(&fault, 1, 60000) == 1, "the fault");
	/* It waits for that lock, and has the one of all. */
	pthread_create(&threads[1], NULL, nest, NULL);
	while (!nester || state(nester) != 'D')
		usleep(100);
	puts("held");
	fflush(stdout);
	poll(&end, 1, 2000);
	puts("lets go");
	fflush(stdout);
	answer.range = of.range;
	ioctl(faults, UFFDIO_ZEROPAGE, &answer);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	return 0;
}
