/* Locks that threads leave by jumps out of signal handlers, meet in signal handlers, or lose to others: `jumps NAME`.
 *
 * A filter of system calls raises a signal in the middle of a synchronisation: in place of the library's kick. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <ucontext.h>

#include "port.h"

#if defined(__x86_64__)
#define FIRST_ARGUMENT(context) ((context)->uc_mcontext.gregs[REG_RDI])
#define SECOND_ARGUMENT(context) ((context)->uc_mcontext.gregs[REG_RSI])
#define FOURTH_ARGUMENT(context) ((context)->uc_mcontext.gregs[REG_R10])
#define RESULT(context) ((context)->uc_mcontext.gregs[REG_RAX])
#elif defined(__aarch64__)
#define FIRST_ARGUMENT(context) ((context)->uc_mcontext.regs[0])
#define SECOND_ARGUMENT(context) ((context)->uc_mcontext.regs[1])
#define FOURTH_ARGUMENT(context) ((context)->uc_mcontext.regs[3])
#define RESULT(context) ((context)->uc_mcontext.regs[0])
#endif

typedef void handler(int, siginfo_t *, void *);

/* The time that the program and the library see, if it is not 0: in nanoseconds. */
static volatile int64_t frozen;

int clock_gettime(clockid_t clock, struct timespec *time) {
    if (frozen) {
        *time = (struct timespec){.tv_sec = frozen / 1000000000, .tv_nsec = frozen % 1000000000};
        return 0;
    }
    return syscall(SYS_clock_gettime, clock, time);
}

static void catch(int number, handler *handler, int flags) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    CHECK(sigaction(number, &action, NULL) == 0);
}

static void install(struct sock_filter *filter, unsigned short length, handler *handler) {
    struct sock_fprog program = {.len = length, .filter = filter};
    catch(SIGSYS, handler, SA_NODEFER);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
}

/* From now on this thread's system calls of this number and with this argument raise SIGSYS instead. */
static void trap(unsigned number, int at, unsigned argument, handler *handler) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + at * 8),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, argument, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    install(filter, sizeof(filter) / sizeof(filter[0]), handler);
}

/* All system calls of this number. */
static void trap_all(unsigned number, handler *handler) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    install(filter, sizeof(filter) / sizeof(filter[0]), handler);
}

/* The library wakes the switch by eight bytes. */
static void trap_kicks(handler *handler) {
    trap(SYS_write, 2, 8, handler);
}

/* Room for events that no other call has. */
#define ROOM 77

static struct port a, b;
/* The next frame's number. */
static uint32_t sent;
static volatile int kicks;
static sigjmp_buf back;

static void open_both(void) {
    a = port_open("lan0:a");
    b = port_open("lan0:b");
}

/* Sends single frames to a switch that sleeps in between, until a synchronisation kicks. The frame is then on its way. */
static void send_until_a_kick(void) {
    for (double end = now() + PATIENCE; now() < end; usleep(20000)) {
        CHECK(put(a.tx[0], 1, sent, 1) == 1 && ioctl(a.fd, NM_TXSYNC, NULL) == 0);
        if (kicks > 0)
            return;
        expect(&b, sent++, 1);
    }
    FAIL("no kick");
}

static void in_thread(void *(*work)(void *)) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

static void counts(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    kicks++;
}

static void jumps(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    siglongjmp(back, 1);
}

static void *leaves_a_kick(void *argument) {
    trap_kicks(jumps);
    if (sigsetjmp(back, 1) == 0)
        send_until_a_kick();
    return argument;
}

/* A thread leaves a synchronisation after it has published frames, and before it wakes the switch: the next one wakes it. */
static void left_kick_case(void) {
    open_both();
    in_thread(leaves_a_kick);
    trap_kicks(counts);
    CHECK(ioctl(a.fd, NM_TXSYNC, NULL) == 0 && kicks == 1);
}

/* The locks of `a`'s transmit and of `b`'s receive ring, and what the library writes to wake the switch. */
static volatile uint64_t *tx_lock, *rx_lock;
static uint64_t held;
static int kick_fd;

/* The locks are in the second half of the first page of a port's part of the region, in cache lines of their own. */
static void finds_lock(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    for (char *page = (char *)((uintptr_t)a.tx[0] & -4096); page >= a.mem && !tx_lock; page -= 4096) {
        volatile uint64_t *word = (volatile uint64_t *)(page + 2048);
        if ((pid_t)(*word & ((1 << 22) - 1)) == gettid())
            tx_lock = word;
    }
    CHECK(tx_lock);
    held = *tx_lock;
    kick_fd = FIRST_ARGUMENT((ucontext_t *)context);
    kicks++;
}

static void *finds_locks(void *argument) {
    trap_kicks(finds_lock);
    send_until_a_kick();
    return argument;
}

static void kick(void) {
    CHECK(write(kick_fd, &(uint64_t){1}, 8) == 8);
}

static void find_locks(void) {
    in_thread(finds_locks);
    kick();
    expect(&b, sent++, 1);
    rx_lock = (volatile uint64_t *)((char *)tx_lock + ((char *)b.tx[0] - (char *)a.tx[0])) + 8;
    CHECK(*tx_lock == 0 && *rx_lock == 0);
}

/* The word of a lock that this thread has taken at a place of its stack. */
static uint64_t taken_at(uintptr_t place) {
    return (held & 0xfffc00000) | gettid() | (uint64_t)place >> 4 << 36;
}

static uintptr_t here(void) {
    return (uintptr_t)__builtin_frame_address(0);
}

/* A frame is in `b`'s ring, whose lock this thread seems to have taken at a place of its stack. */
static void leave_locked(uintptr_t place) {
    open_both();
    find_locks();
    send_frames(&a, 1, sent, 1);
    drain(&a, 0);
    /* In the ring: synchronised, and not taken. */
    for (double end = now() + PATIENCE; b.rx[0]->head == b.rx[0]->tail;)
        CHECK(ioctl(b.fd, NM_RXSYNC, NULL) == 0 && now() < end);
    CHECK(take(b.rx[0], sent++) == 1);
    send_frames(&a, 1, sent, 1);
    drain(&a, 0);
    *rx_lock = taken_at(place);
}

static void left_poll_case(void) {
    leave_locked(here() + 4096);
    struct pollfd fd = {.fd = b.fd, .events = POLLIN};
    CHECK(poll(&fd, 1, -1) == 1 && fd.revents == POLLIN && take(b.rx[0], sent) == 1);
}

static void left_epoll_case(void) {
    leave_locked(here() + 4096);
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, b.fd, &event) == 0);
    CHECK(epoll_wait(set, &event, 1, -1) == 1 && event.data.u64 == 7 && take(b.rx[0], sent) == 1);
}

static int set;

static __attribute__((noinline)) void wait_deep(struct epoll_event *event) {
    char deep[1 << 16];
    memset(deep, 0, sizeof(deep));
    CHECK(epoll_wait(set, event, 1, -1) == 1 && memchr(deep, 1, sizeof(deep)) == NULL);
}

/* A wait is left while it works with the set, and the next one is deeper on the stack. */
static void left_set_case(void) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7}, events[ROOM];
    open_both();
    set = epoll_create1(0);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, b.fd, &event) == 0);
    /* Until the library has nothing of its own in the kernel's set. */
    for (int i = 0; i < 50; i++)
        CHECK(epoll_wait(set, events, 1, 1) == 0);
    trap(SYS_epoll_pwait, 2, ROOM, jumps);
    if (sigsetjmp(back, 1) == 0) {
        epoll_wait(set, events, ROOM, 0);
        FAIL("not left");
    }
    send_frames(&a, 1, 0, 1);
    drain(&a, 0);
    wait_deep(&event);
    CHECK(event.data.u64 == 7 && take(b.rx[0], 0) == 1);
}

/* The thread may still work with a lock that it has taken on another stack. */
static void other_stack_case(void) {
    leave_locked(here() - (64 << 20));
    uint64_t word = *rx_lock;
    CHECK(ioctl(b.fd, NM_RXSYNC, NULL) == 0 && *rx_lock == word && b.rx[0]->head == b.rx[0]->tail);
    /* On the same stack it does not. */
    *rx_lock = taken_at(here() - (64 << 10));
    expect(&b, sent, 1);
}

static void receives(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    expect(&b, sent, 1);
}

/* All that the thread does happens in a handler on a stack of its own. */
static void own_stack_case(void) {
    leave_locked(here() + 4096);
    stack_t other = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    CHECK(sigaltstack(&other, NULL) == 0);
    catch(SIGUSR1, receives, SA_ONSTACK);
    CHECK(raise(SIGUSR1) == 0);
}

static volatile struct {
    int held, synced, released;
} *shared;
static pid_t child;

static void share(void) {
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK((void *)shared != MAP_FAILED);
}

static void reap(void) {
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Waits until a process sleeps, as one that waits for a lock does, or has synchronised. */
static void await_sleep_or_sync(pid_t process) {
    char path[64], text[256], state = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", process);
    for (double end = now() + PATIENCE; state != 'S' && !shared->synced;) {
        int fd = open(path, O_RDONLY);
        ssize_t length = read(fd, text, sizeof(text) - 1);
        CHECK(fd >= 0 && length > 0 && close(fd) == 0 && now() < end);
        text[length] = 0;
        state = strrchr(text, ')')[2];
    }
}

/* In a synchronisation: a child, of which libc does not know, synchronises the same ring. */
static void clones(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    if (kicks++ > 0)
        return;
    child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        int result = ioctl(a.fd, NM_TXSYNC, NULL), was_released = shared->released;
        shared->synced = 1;
        _exit(result == 0 && was_released ? 0 : 1);
    }
    await_sleep_or_sync(child);
    shared->released = 1;
}

static void *clones_in_a_sync(void *argument) {
    trap_kicks(clones);
    send_until_a_kick();
    return argument;
}

static void raw_clone_case(void) {
    open_both();
    share();
    in_thread(clones_in_a_sync);
    reap();
}

/* In a synchronisation: a child that goes on with it. */
static void forks(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    if (kicks++ > 0 || (child = fork()) == 0)
        return;
    for (double end = now() + PATIENCE; !shared->synced;)
        CHECK(now() < end);
    shared->held = (pid_t)(*tx_lock & ((1 << 22) - 1)) == gettid();
}

static void *forks_in_a_sync(void *argument) {
    trap_kicks(forks);
    send_until_a_kick();
    if (child == 0) {
        shared->synced = 1;
        _exit(0);
    }
    return argument;
}

/* The child of a handler that forks in a synchronisation does not release its parent's ring. */
static void forked_in_sync_case(void) {
    open_both();
    share();
    find_locks();
    kicks = 0;
    in_thread(forks_in_a_sync);
    CHECK(shared->held && *tx_lock == 0);
    reap();
}

static void *lives(void *argument) {
    *(volatile pid_t *)argument = gettid();
    pause();
    return NULL;
}

/* In the wait for a ring: the lock is free in a child that goes on, and then in its parent. */
static void forks_waiting(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    RESULT((ucontext_t *)context) = 0;
    if (kicks++ > 0)
        return;
    child = fork();
    for (double end = now() + PATIENCE; child != 0 && !shared->synced;)
        CHECK(now() < end);
    *tx_lock = 0;
}

/* The child of a handler that forks in a wait for a ring takes the ring in its own name, and releases it. */
static void forked_waiting_case(void) {
    volatile pid_t other = 0;
    pthread_t thread;
    open_both();
    share();
    find_locks();
    CHECK(pthread_create(&thread, NULL, lives, (void *)&other) == 0);
    while (other == 0)
        sched_yield();
    *tx_lock = (taken_at(here()) & ~((1ULL << 22) - 1)) | other;
    kicks = 0;
    trap_all(SYS_nanosleep, forks_waiting);
    CHECK(ioctl(a.fd, NM_TXSYNC, NULL) == 0 && kicks > 0 && *tx_lock == 0);
    if (child == 0) {
        shared->synced = 1;
        _exit(0);
    }
    reap();
}

static volatile int is_held;

/* In a synchronisation of a child, of which libc does not know: the parent synchronises the same ring. */
static void holds(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    if (kicks++ > 0)
        return;
    shared->held = 1;
    await_sleep_or_sync(getppid());
    is_held = !shared->synced;
    shared->released = 1;
}

static void raw_child_case(void) {
    open_both();
    share();
    send_frames(&a, 1, sent, 1);
    expect(&b, sent++, 1);
    child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        trap_kicks(holds);
        send_until_a_kick();
        _exit(is_held ? 0 : 1);
    }
    while (!shared->held)
        sched_yield();
    CHECK(ioctl(a.fd, NM_TXSYNC, NULL) == 0);
    shared->synced = 1;
    reap();
}

/* The namespace in the word of a lock: whether it is unknown, and its number. */
static unsigned namespace(void) {
    return held >> 22 & ((1 << 14) - 1);
}

/* A thread and a child that begin without /proc: the process knows its namespace all the same, and the child does not. */
static void no_proc_case(void) {
    open_both();
    find_locks();
    unsigned known = namespace();
    CHECK(chroot("/dev") == 0 && chdir("/") == 0);
    find_locks();
    CHECK(namespace() == known && known >> 13 == 0);
    child = fork();
    if (child == 0) {
        alarm(2 * PATIENCE);
        find_locks();
        _exit(namespace() >> 13 == 1 ? 0 : 1);
    }
    reap();
}

static pid_t in_own_namespace(void) {
    CHECK(unshare(CLONE_NEWPID) == 0);
    return fork();
}

/* A kernel that cannot empty memory in the child of a fork: the child is in another namespace than its parent. */
static void no_wipe_case(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 2 * 8),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_WIPEONFORK, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
    open_both();
    find_locks();
    unsigned known = namespace();
    child = in_own_namespace();
    if (child == 0) {
        alarm(2 * PATIENCE);
        kicks = 0;
        find_locks();
        _exit(namespace() == known ? 1 : 0);
    }
    reap();
}

static int ctl_errno;
static struct port c;

static void epoll_add(int fd, uint64_t data) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = data};
    ctl_errno = epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : errno;
}

static int epoll_look(struct epoll_event *events) {
    for (double end = now() + PATIENCE; b.rx[0]->head == b.rx[0]->tail;)
        CHECK(ioctl(b.fd, NM_RXSYNC, NULL) == 0 && now() < end);
    return epoll_wait(set, events, 1, 0);
}

/* While its own thread works with the set: another set takes the place. */
static void makes_another(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    CHECK(close(set) == 0 && (set = epoll_create1(0)) >= 0);
    epoll_add(b.fd, 9);
    RESULT((ucontext_t *)context) = 0;
}

static void made_in_handler_case(void) {
    struct epoll_event events[ROOM];
    open_both();
    set = epoll_create1(0);
    epoll_add(b.fd, 7);
    trap(SYS_epoll_pwait, 2, ROOM, makes_another);
    epoll_wait(set, events, ROOM, 0);
    CHECK(ctl_errno == EBUSY);
    send_frames(&a, 1, 0, 1);
    CHECK(epoll_look(events) == 0);
    epoll_add(b.fd, 9);
    CHECK(ctl_errno == 0 && epoll_look(events) == 1 && events[0].data.u64 == 9);
}

/* While its own thread works with the set: a descriptor in it becomes another file's. */
static void renumbers(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    CHECK(close(c.fd) == 0 && dup2(b.fd, c.fd) == c.fd);
    RESULT((ucontext_t *)context) = 0;
}

static void renumbered_case(void) {
    struct epoll_event events[ROOM];
    open_both();
    c = port_open("lan0:c");
    set = epoll_create1(0);
    epoll_add(c.fd, 7);
    trap(SYS_epoll_pwait, 2, ROOM, renumbers);
    CHECK(epoll_wait(set, events, ROOM, 0) == 0);
    send_frames(&a, 1, 0, 1);
    CHECK(epoll_look(events) == 0);
    epoll_add(c.fd, 8);
    CHECK(ctl_errno == 0 && epoll_look(events) == 1 && events[0].data.u64 == 8);
}

/* While its own thread works with the set: the handler looks for almost three seconds, of which none passes. */
static void looks(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    struct epoll_event event;
    int64_t begin = now() * 1e9;
    for (frozen = begin; frozen < begin + 2900000000; frozen += 100000000)
        CHECK(epoll_wait(set, &event, 1, 0) == 0);
    frozen = 0;
    RESULT((ucontext_t *)context) = 0;
}

/* A thread may work with a set for longer than with a ring. */
static void long_work_case(void) {
    struct epoll_event events[ROOM];
    open_both();
    set = epoll_create1(0);
    epoll_add(b.fd, 7);
    send_frames(&a, 1, 0, 1);
    drain(&a, 0);
    /* Now it is the turn of the kernel's set. */
    for (int found = 0; found == 0;)
        found = epoll_look(events);
    trap(SYS_epoll_pwait, 2, ROOM, looks);
    CHECK(epoll_wait(set, events, ROOM, 0) == 1 && events[0].data.u64 == 7);
}

/* While its own thread works with the set: a child does not work with it in the handler, and goes on with it afterwards. */
static void forks_in_set(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    struct epoll_event event;
    RESULT((ucontext_t *)context) = 0;
    child = fork();
    if (child == 0)
        CHECK(epoll_wait(set, &event, 1, 0) == 0);
}

static void handler_forks_case(void) {
    struct epoll_event events[ROOM];
    open_both();
    set = epoll_create1(0);
    epoll_add(b.fd, 7);
    send_frames(&a, 1, 0, 1);
    drain(&a, 0);
    for (int found = 0; found == 0;)
        found = epoll_look(events);
    trap(SYS_epoll_pwait, 2, ROOM, forks_in_set);
    CHECK(epoll_wait(set, events, ROOM, 0) == 1 && events[0].data.u64 == 7);
    wait_deep(events);
    if (child == 0)
        _exit(0);
    reap();
}

/* As the handler before, by a fork that libc's handlers do not learn of. */
static void forks_quietly_in_set(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    RESULT((ucontext_t *)context) = 0;
    child = _Fork();
}

/* The child has released the set. */
static void quiet_fork_case(void) {
    struct epoll_event events[ROOM];
    open_both();
    set = epoll_create1(0);
    epoll_add(b.fd, 7);
    send_frames(&a, 1, 0, 1);
    drain(&a, 0);
    for (int found = 0; found == 0;)
        found = epoll_look(events);
    trap(SYS_epoll_pwait, 2, ROOM, forks_quietly_in_set);
    CHECK(epoll_wait(set, events, ROOM, 0) == 1 && events[0].data.u64 == 7);
    if (child == 0)
        alarm(2 * PATIENCE);
    wait_deep(events);
    if (child == 0)
        _exit(0);
    reap();
}

/* In the wait for the daemon's answer: a child that goes on with the request before its parent. */
static void forks_in_request(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    RESULT((ucontext_t *)context) = 1;
    if (kicks++ > 0 || (child = fork()) == 0)
        return;
    for (double end = now() + PATIENCE; !shared->synced;)
        CHECK(now() < end);
}

static void forked_in_request_case(void) {
    struct nm_port_info info = {0};
    open_both();
    share();
    trap(SYS_ppoll, 1, 1, forks_in_request);
    int error = control(a.fd, "lan0:a", REQ_PORT_INFO, &info, NULL);
    if (child == 0) {
        shared->synced = 1;
        _exit(error == EINTR ? 0 : 1);
    }
    CHECK(error == 0 && info.tx_slots > 0 && kicks > 0);
    reap();
}

/* In the same wait, by a fork that libc's handlers do not learn of: the parent goes on first and takes the answer. */
static void forks_quietly_in_request(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    RESULT((ucontext_t *)context) = 1;
    if (kicks++ == 0) {
        child = _Fork();
        if (child == 0) {
            alarm(2 * PATIENCE);
            while (!shared->synced)
                sched_yield();
            RESULT((ucontext_t *)context) = -EINTR;
        }
    } else if (child == 0 && !shared->released) {
        _exit(2); /* It waits for the answer. */
    }
}

static void quiet_fork_in_request_case(void) {
    struct nm_port_info info = {0};
    open_both();
    share();
    trap(SYS_ppoll, 1, 1, forks_quietly_in_request);
    int error = control(a.fd, "lan0:a", REQ_PORT_INFO, &info, NULL);
    if (child == 0) {
        CHECK(error == EINTR);
        shared->released = 1;
        /* The child has released the descriptor for requests. */
        _exit(control(a.fd, "lan0:a", REQ_PORT_INFO, &info, NULL) == 0 ? 0 : 1);
    }
    shared->synced = 1;
    CHECK(error == 0 && info.tx_slots > 0 && kicks > 0);
    reap();
}

static volatile int sleeps_begun;

static void interrupts(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    sleeps_begun++;
    RESULT((ucontext_t *)context) = -EINTR;
}

/* The daemon has gone, and the set has reported it: a wait without a limit sleeps without one. */
static void ended_case(void) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = 7};
    alarm(2 * PATIENCE);
    open_both();
    set = epoll_create1(0);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, b.fd, &event) == 0);
    puts("waiting");
    fflush(stdout);
    CHECK(epoll_wait(set, &event, 1, -1) == 1 && event.events == EPOLLERR);
    trap(SYS_ppoll, 2, 0, interrupts);
    CHECK(epoll_wait(set, &event, 1, -1) == -1 && errno == EINTR && sleeps_begun == 1);
}

static volatile int is_in_set, is_forked;

/* While its own thread works with the set: the set is closed, and the process forks. */
static void stays(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    CHECK(close(set) == 0);
    is_in_set = 1;
    while (!is_forked)
        sched_yield();
    RESULT((ucontext_t *)context) = 0;
}

static void *stays_in_the_set(void *argument) {
    struct epoll_event events[ROOM];
    trap(SYS_epoll_pwait, 2, ROOM, stays);
    epoll_wait(set, events, ROOM, 0);
    return argument;
}

/* The child has the place for another set. */
static void forked_in_set_case(void) {
    pthread_t thread;
    open_both();
    set = epoll_create1(0);
    epoll_add(b.fd, 7);
    CHECK(pthread_create(&thread, NULL, stays_in_the_set, NULL) == 0);
    while (!is_in_set)
        sched_yield();
    child = fork();
    if (child == 0) {
        alarm(2 * PATIENCE);
        struct epoll_event event;
        set = epoll_create1(0);
        struct epoll_event wanted = {.events = EPOLLOUT, .data.u64 = 8};
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, b.fd, &wanted) == 0);
        _exit(epoll_wait(set, &event, 1, 0) == 1 && event.data.u64 == 8 ? 0 : 1);
    }
    reap();
    is_forked = 1;
    CHECK(pthread_join(thread, NULL) == 0);
}

/* While epoll_ctl reads its event: the descriptor is closed. */
static void closes(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    struct iovec *local = (struct iovec *)SECOND_ARGUMENT((ucontext_t *)context);
    struct iovec *remote = (struct iovec *)FOURTH_ARGUMENT((ucontext_t *)context);
    memcpy(local->iov_base, remote->iov_base, local->iov_len);
    RESULT((ucontext_t *)context) = local->iov_len;
    CHECK(close(c.fd) == 0);
}

static void closed_in_change_case(void) {
    open_both();
    c = port_open("lan0:c");
    set = epoll_create1(0);
    epoll_add(b.fd, 7);
    trap(SYS_process_vm_readv, 2, 1, closes);
    epoll_add(c.fd, 8);
    CHECK(ctl_errno == EBADF);
}

#if defined(__x86_64__)
static volatile int steps, last_step;
static volatile uint64_t lost;

static void single_step(void *context, int is_on) {
    long long *flags = &((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL];
    *flags = is_on ? *flags | 0x100 : *flags & ~0x100;
}

static void begins(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    steps = 0;
    single_step(context, 1);
}

/* At the last step another thread takes the lock over, if it is held. */
static void steps_on(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    if (++steps < last_step)
        return;
    single_step(context, 0);
    if (*rx_lock)
        *rx_lock = lost = 1 | 1ULL << 40;
}

/* After every fourth instruction of a synchronisation in turn, or after each one: each takes as many signals as there are instructions before it. */
static void lost_lock_case(void) {
    open_both();
    find_locks();
    catch(SIGUSR1, begins, 0);
    catch(SIGTRAP, steps_on, 0);
    int losses = 0, stride = whole(4, 1);
    for (last_step = 1;; last_step += stride) {
        lost = 0;
        CHECK(raise(SIGUSR1) == 0 && ioctl(b.fd, NM_RXSYNC, NULL) == 0);
        if (steps < last_step)
            break;
        if (lost) {
            CHECK(*rx_lock == lost);
            *rx_lock = 0;
            losses++;
        }
    }
    last_step = 0;
    CHECK(losses > 0);
}

static void steps_and_replaces(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    if (++steps < last_step)
        return;
    single_step(context, 0);
    CHECK(close(set) == 0 && epoll_create1(0) == set);
    epoll_add(b.fd, 9);
}

/* After every eighth instruction of a wait in turn (every fourth in the long form), another set gets the number and the place. From the instruction on at which the wait knows its
 * set, it reports nothing of the other one. */
static void replaced_case(void) {
    struct epoll_event event;
    int knows = 0, replaced = 0, stride = whole(8, 4);
    open_both();
    send_frames(&a, 1, 0, 1);
    set = epoll_create1(0);
    CHECK(epoll_look(&event) == 0);
    catch(SIGUSR1, begins, 0);
    catch(SIGTRAP, steps_and_replaces, 0);
    for (last_step = 1;; last_step += stride) {
        epoll_add(b.fd, 7);
        CHECK(ctl_errno == 0 && raise(SIGUSR1) == 0);
        int found = epoll_wait(set, &event, 1, 0);
        if (steps < last_step)
            break;
        int is_new = found == 1 && event.data.u64 == 9;
        CHECK(!is_new || !knows);
        if (ctl_errno == 0 && !is_new)
            knows = 1, replaced++;
        CHECK(close(set) == 0 && epoll_create1(0) == set);
    }
    last_step = 0;
    CHECK(replaced > 10);
}

static volatile int is_through;

static volatile int is_replaced;
static volatile pid_t sleeper_tid;
static pthread_t sleeper;

static void *sleeps_in_the_other(void *argument) {
    struct epoll_event event;
    sleeper_tid = gettid();
    /* A limit, as its sleep is to be none that the filter raises a signal for. */
    CHECK(epoll_wait(set, &event, 1, 1 << 30) == 1 && event.data.u64 == 10);
    return argument;
}

/* Another set gets the number and the place, and another thread sleeps in it. */
static void steps_and_replaces_asleep(int number, siginfo_t *info, void *context) {
    steps_and_replaces(number, info, context);
    if (steps < last_step || ctl_errno != 0)
        return;
    is_replaced = 1;
    sleeper_tid = 0;
    CHECK(pthread_create(&sleeper, NULL, sleeps_in_the_other, NULL) == 0);
    while (sleeper_tid == 0)
        sched_yield();
    sleeps(&sleeper_tid);
}

/* The thread wakes up. The second time it is interrupted. */
static void wakes(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    RESULT((ucontext_t *)context) = steps == 0 || is_replaced ? 0 : -EINTR;
    if (steps == 0)
        single_step(context, 1);
}

/* After every eighth instruction of the end of a sleep in turn (every fourth in the long form), up to those that work with the set again. */
static void replaced_asleep_case(void) {
    struct epoll_event event;
    int replaced = 0, stride = whole(8, 4);
    open_both();
    set = epoll_create1(0);
    catch(SIGTRAP, steps_and_replaces_asleep, 0);
    /* The sleep of a wait without a limit. */
    trap(SYS_ppoll, 2, 0, wakes);
    for (last_step = 1;; last_step += stride) {
        epoll_add(b.fd, 7);
        CHECK(ctl_errno == 0);
        steps = is_replaced = 0;
        CHECK(epoll_wait(set, &event, 1, -1) == -1 && errno == EBADF);
        if (!is_replaced)
            break;
        replaced++;
        struct epoll_event room = {.events = EPOLLOUT, .data.u64 = 10};
        CHECK(epoll_ctl(set, EPOLL_CTL_MOD, b.fd, &room) == 0 && pthread_join(sleeper, NULL) == 0);
        CHECK(close(set) == 0 && epoll_create1(0) == set);
    }
    last_step = 0;
    CHECK(ctl_errno == EBUSY && replaced > 10);
}

static int added;

static void steps_and_adds(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    if (++steps < last_step)
        return;
    single_step(context, 0);
    epoll_add(added, 7);
}

/* After each instruction of a wait in turn, up to those that work with the set, a descriptor is added about which the process has not asked
 * yet. It is registered, and no wait reports it. */
static void added_unknown_case(void) {
    struct epoll_event event;
    int pair[2];
    open_both();
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    set = epoll_create1(0);
    epoll_add(a.fd, 6);
    catch(SIGUSR1, begins, 0);
    catch(SIGTRAP, steps_and_adds, 0);
    for (last_step = 1; ctl_errno == 0; last_step++) {
        pass(pair[0], b.fd);
        added = passed(pair[1]);
        CHECK(raise(SIGUSR1) == 0 && epoll_wait(set, &event, 1, 0) == 0 && steps == last_step);
        CHECK(epoll_wait(set, &event, 1, 0) == 0);
        CHECK(close(added) == 0);
    }
    CHECK(ctl_errno == EBUSY && last_step > 10);
}

/* The slots by which the `tail` of `b`'s receive ring has moved: in the doorbell, which is somewhere in the page after the locks. */
static volatile uint64_t *moved;
static volatile int was_held, is_counted;

static void find_moved(void) {
    char *page = (char *)((uintptr_t)rx_lock & -4096) + 4096;
    for (char *block = page; block < page + 4096; block += 256)
        if (*(volatile uint64_t *)(block + 152))
            moved = (volatile uint64_t *)(block + 152);
    CHECK(moved);
}

/* Some steps after the thread has released the ring, another one has counted a frame, and has not shown it yet. */
static void steps_and_counts(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    if (*rx_lock)
        was_held = 1;
    if (!was_held || *rx_lock || ++steps < last_step)
        return;
    single_step(context, 0);
    ++*moved;
    is_counted = 1;
}

static void arrives(void) {
    send_frames(&a, 1, sent, 1);
    drain(&a, 0);
    for (double end = now() + PATIENCE; b.rx[0]->head == b.rx[0]->tail;)
        CHECK(ioctl(b.fd, NM_RXSYNC, NULL) == 0 && now() < end);
}

static void counted_meanwhile_case(void) {
    open_both();
    find_locks();
    find_moved();
    set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = 7};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, b.fd, &event) == 0);
    catch(SIGUSR1, begins, 0);
    catch(SIGTRAP, steps_and_counts, 0);
    for (last_step = 1; last_step < 40; last_step += whole(2, 1)) {
        arrives();
        was_held = is_counted = 0;
        CHECK(raise(SIGUSR1) == 0 && epoll_wait(set, &event, 1, 0) == 1);
        CHECK(is_counted && take(b.rx[0], sent++) == 1);
        /* The other one has it from now on. */
        --*moved;
        arrives();
        CHECK(epoll_wait(set, &event, 1, 0) == 1 && take(b.rx[0], sent++) == 1);
    }
}

static void steps_and_jumps(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    if (is_through)
        single_step(context, 0);
    else if (++steps >= last_step)
        siglongjmp(back, 1);
}

/* Leaves a synchronisation that finds a frame, at every fourth instruction in turn (each in the long form): an edge-triggered set reports the frame. */
static void left_arrival_case(void) {
    open_both();
    set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = 7};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, b.fd, &event) == 0);
    catch(SIGUSR1, begins, 0);
    catch(SIGTRAP, steps_and_jumps, 0);
    for (last_step = 1; !is_through; last_step += whole(4, 1)) {
        send_frames(&a, 1, sent, 1);
        drain(&a, 0);
        int is_left = sigsetjmp(back, 1);
        /* The synchronisation after a jump is at the same place of the stack. */
        CHECK((is_left || raise(SIGUSR1) == 0) && ioctl(b.fd, NM_RXSYNC, NULL) == 0);
        is_through = !is_left;
        CHECK(epoll_wait(set, &event, 1, 5000) == 1 && take(b.rx[0], sent++) == 1);
    }
    CHECK(last_step > 100);
}
#else
static void replaced_asleep_case(void) {
}

static void added_unknown_case(void) {
}

static void counted_meanwhile_case(void) {
}

static void left_arrival_case(void) {
}

static void replaced_case(void) {
}

static void lost_lock_case(void) {
}
#endif

static const struct test_case cases[] = {
    {"left-kick", left_kick_case}, {"left-poll", left_poll_case}, {"left-epoll", left_epoll_case},
    {"left-set", left_set_case}, {"other-stack", other_stack_case}, {"own-stack", own_stack_case},
    {"lost-lock", lost_lock_case}, {"raw-clone", raw_clone_case}, {"left-arrival", left_arrival_case},
    {"replaced", replaced_case}, {"made-in-handler", made_in_handler_case}, {"renumbered", renumbered_case},
    {"raw-child", raw_child_case}, {"no-proc", no_proc_case}, {"long-work", long_work_case}, {"forked-in-set", forked_in_set_case},
    {"closed-in-change", closed_in_change_case}, {"replaced-asleep", replaced_asleep_case},
    {"forked-in-sync", forked_in_sync_case}, {"handler-forks", handler_forks_case}, {"no-wipe", no_wipe_case},
    {"forked-waiting", forked_waiting_case}, {"forked-in-request", forked_in_request_case},
    {"quiet-fork", quiet_fork_case}, {"quiet-fork-in-request", quiet_fork_in_request_case}, {"ended", ended_case},
    {"added-unknown", added_unknown_case}, {"counted-meanwhile", counted_meanwhile_case},
};

int main(int argc, char **argv) {
    return run_case(cases, sizeof(cases) / sizeof(cases[0]), argc, argv);
}
