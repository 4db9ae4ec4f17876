/* A page of memory whose fault the kernel waits for, made by the user nobody: what any user of the machine can do.
 *
 * userfaultfd(2) gives such a page to root alone: for others (vm.unprivileged_userfaultfd = 0) it has only UFFD_USER_MODE_ONLY, and the
 * kernel's own accesses to the page then fail at once. But any user may mount FUSE in a user namespace of their own, and map a file whose
 * reads they do not answer. That needs /dev/fuse and user namespaces, which Debian and most others leave to everybody. Where an
 * administrator takes one of them away (user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns), "nobody" cannot do this.
 *
 * The process that answers FUSE is another one than the process that touches the page. The kernel does not let a thread go that waits for
 * a read which was begun, and closes /dev/fuse only after the last thread of its process: one process could never end. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOBODY 65534
#define PAGE "/tmp/page"

static void check(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static void put(const char *path, const char *text)
{
	int file = open(path, O_WRONLY | O_CLOEXEC);

	check(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text), path);
	close(file);
}

/* Becomes the user nobody, with a user namespace of its own. */
static void become_nobody(void)
{
	if (geteuid() == 0)
		check(setgroups(0, NULL) == 0 && setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0,
		      "to become nobody");
	char map[64];

	snprintf(map, sizeof(map), "0 %d 1", (int)geteuid());
	/* The files in /proc are its own again. */
	prctl(PR_SET_DUMPABLE, 1);
	check(unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0, "a user namespace");
	put("/proc/self/setgroups", "deny");
	put("/proc/self/uid_map", map);
	snprintf(map, sizeof(map), "0 %d 1", (int)getegid());
	put("/proc/self/gid_map", map);
}

/* Mounts a file of a page, and returns the descriptor by which this process answers for it. */
static int mount_page(void)
{
	char options[96];
	int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	check(fuse >= 0, "/dev/fuse");
	check(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mount("page", "/tmp", "tmpfs", 0, NULL) == 0, "/tmp");
	close(open(PAGE, O_CREAT | O_RDWR | O_CLOEXEC, 0600));
	snprintf(options, sizeof(options), "fd=%d,rootmode=100600,user_id=0,group_id=0", fuse);
	check(mount("page", PAGE, "fuse", MS_NOSUID | MS_NODEV, options) == 0, "FUSE");
	return fuse;
}

static void answer(int fuse, unsigned long of, int error, const void *data, unsigned long length)
{
	char bytes[512];
	struct fuse_out_header header = { .len = sizeof(header) + length, .error = error, .unique = of };

	memcpy(bytes, &header, sizeof(header));
	memcpy(bytes + sizeof(header), data, length);
	/* A request that was interrupted is not there any more. */
	if (write(fuse, bytes, header.len) < 0 && errno != ENOENT)
		check(0, "an answer");
}

/* Answers the next request, but for a read of the page. Returns 1 if it is one. */
static int serve(int fuse)
{
	static char request[1 << 20];
	ssize_t length = read(fuse, request, sizeof(request));
	struct fuse_in_header *header = (struct fuse_in_header *)request;
	struct fuse_init_out init = { .major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096, .max_readahead = 4096 };
	struct fuse_attr_out attributes = { .attr_valid = 3600,
		.attr = { .ino = 1, .size = 4096, .blocks = 8, .mode = S_IFREG | 0600, .nlink = 1, .blksize = 4096 } };
	struct fuse_open_out opened = { 0 };

	if (length < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN))
		return 0;
	check(length >= (ssize_t)sizeof(*header), "a request");
	switch (header->opcode) {
	case FUSE_INIT:
		answer(fuse, header->unique, 0, &init, sizeof(init));
		break;
	case FUSE_GETATTR:
		answer(fuse, header->unique, 0, &attributes, sizeof(attributes));
		break;
	case FUSE_OPEN:
		answer(fuse, header->unique, 0, &opened, sizeof(opened));
		break;
	case FUSE_READ:
		return 1;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		break;
	default:
		answer(fuse, header->unique, -ENOSYS, "", 0);
	}
	return 0;
}

static long milliseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Has `hold` touch the page, in a process of its own: it gets the page, and a descriptor that has a byte once the kernel waits for the
 * page. It prints "held" then. Lets go `longest` milliseconds after that, or at the end of stdin. Without `hold` it says only whether
 * there can be such a page. */
static int hold_page(void (*hold)(void *page, int waits), long longest)
{
	int tell[2];

	become_nobody();
	int fuse = mount_page();

	if (!hold)
		return 0;
	check(pipe2(tell, O_CLOEXEC) == 0, "a pipe");
	pid_t holder = fork();

	check(holder >= 0, "fork");
	if (holder == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fuse);
		int file = open(PAGE, O_RDWR | O_CLOEXEC);

		struct stat size;

		/* The kernel learns the file's size. */
		check(file >= 0 && fstat(file, &size) == 0 && size.st_size == 4096, PAGE);
		void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);

		check(page != MAP_FAILED, "mmap");
		hold(page, tell[0]);
		_exit(0);
	}
	/* What the holder was given is the holder's alone. */
	for (int other = 3; other < 256; other++)
		if (other != fuse && other != tell[1])
			close(other);
	long end = milliseconds() + 60000;
	struct pollfd fds[2] = { { .fd = fuse, .events = POLLIN }, { .fd = 0, .events = POLLIN } };

	while (milliseconds() < end && waitpid(holder, NULL, WNOHANG) == 0) {
		poll(fds, 2, 10);
		if (fds[1].revents)
			break;
		if (fds[0].revents & POLLIN && serve(fuse)) {
			end = milliseconds() + longest;
			check(write(tell[1], "w", 1) == 1, "a pipe");
		}
	}
	puts("lets go");
	fflush(stdout);
	/* With the connection the read ends. */
	close(fuse);
	kill(holder, SIGKILL);
	waitpid(holder, NULL, 0);
	return 0;
}
