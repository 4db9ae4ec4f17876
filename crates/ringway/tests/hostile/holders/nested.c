/* Holds the lock of the kernel that adding one epoll instance to another takes (epnested_mutex), as any user can by a page whose fault is
 * not answered. Prints "held", and lets go after two seconds or at the end of stdin, whichever comes first. */
#include "page.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

static int inner;
static volatile pid_t nester;

static void *wait_for_events(void *page)
{
	epoll_wait(inner, page, 1, -1);
	return page;
}

static void *nest(void *unused)
{
	struct epoll_event event = { .events = EPOLLIN };

	nester = gettid();
	epoll_ctl(epoll_create1(EPOLL_CLOEXEC), EPOLL_CTL_ADD, inner, &event);
	return unused;
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

static void hold(void *page, int waits)
{
	struct epoll_event event = { .events = EPOLLIN };
	pthread_t threads[2];
	char byte;

	inner = epoll_create1(EPOLL_CLOEXEC);
	check(epoll_ctl(inner, EPOLL_CTL_ADD, eventfd(1, EFD_CLOEXEC), &event) == 0, "epoll_ctl");
	/* It has the lock of its own instance when it touches the page. */
	pthread_create(&threads[0], NULL, wait_for_events, page);
	check(read(waits, &byte, 1) == 1, "the fault");
	/* It waits for that lock, and has the one of all. */
	pthread_create(&threads[1], NULL, nest, NULL);
	while (!nester || state(nester) != 'D')
		usleep(100);
	puts("held");
	fflush(stdout);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
}

int main(void)
{
	return hold_page(hold, 2000);
}
