/* Threads, processes and signal handlers that use one descriptor or one ring, and daemons that do not answer: `sharing NAME`. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "port.h"

static volatile int stop, parked;
static volatile int allocations;

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t number, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

/* The library's allocations are the program's. */
void *malloc(size_t bytes) {
    allocations++;
    return __libc_malloc(bytes);
}

void *calloc(size_t number, size_t bytes) {
    allocations++;
    return __libc_calloc(number, bytes);
}

void *realloc(void *old, size_t bytes) {
    allocations++;
    return __libc_realloc(old, bytes);
}

static void reap(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void *syncs_and_parks(void *argument) {
    struct port *port = argument;
    while (stop >= 0) {
        CHECK(ioctl(port->fd, NM_TXSYNC, NULL) == 0);
        if (stop == 1) {
            parked = 1;
            while (stop == 1)
                sched_yield();
            parked = 0;
        }
    }
    return NULL;
}

/* What a thread has put into a ring is sent when its own NIOCTXSYNC returns, although another thread synchronises the ring at the time. */
static void threads_sync_case(void) {
    struct port a = port_open("lan0:a"), b = port_open("lan0:b");
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, syncs_and_parks, &a) == 0);
    for (uint32_t at = 0, rounds = whole(500, 2000); at < rounds; at++) {
        CHECK(put(a.tx[0], 1, at, 1) == 1);
        stop = 1;
        CHECK(ioctl(a.fd, NM_TXSYNC, NULL) == 0);
        double end = now() + PATIENCE;
        while (!parked)
            CHECK(now() < end);
        expect(&b, at, 1);
        stop = 0;
        while (parked)
            CHECK(now() < end);
    }
    stop = -1;
    CHECK(pthread_join(thread, NULL) == 0);
}

struct turns {
    volatile int stop, parked;
};

/* Returns the child that runs `work` as the first process of a PID namespace of its own. */
static pid_t alone_in_namespace(void (*work)(struct turns *, struct port *, struct port *), struct turns *turns, struct port *a, struct port *b) {
    pid_t helper = fork();
    if (helper == 0) {
        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        CHECK(unshare(CLONE_NEWPID) == 0);
        pid_t child = fork();
        if (child == 0) {
            CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getpid() == 1);
            work(turns, a, b);
            _exit(0);
        }
        reap(child);
        _exit(0);
    }
    return helper;
}

static void parks(struct turns *turns, struct port *a, struct port *b) {
    (void)b;
    while (turns->stop >= 0) {
        CHECK(ioctl(a->fd, NM_TXSYNC, NULL) == 0);
        if (turns->stop == 1) {
            turns->parked = 1;
            while (turns->stop == 1)
                sched_yield();
            turns->parked = 0;
        }
    }
}

static void sends_meanwhile(struct turns *turns, struct port *a, struct port *b) {
    for (uint32_t at = 0, rounds = whole(500, 2000); at < rounds; at++) {
        double end = now() + PATIENCE;
        CHECK(put(a->tx[0], 1, at, 1) == 1);
        turns->stop = 1;
        CHECK(ioctl(a->fd, NM_TXSYNC, NULL) == 0);
        while (!turns->parked)
            CHECK(now() < end);
        expect(b, at, 1);
        turns->stop = 0;
        while (turns->parked)
            CHECK(now() < end);
    }
    turns->stop = -1;
}

/* Threads with equal numbers, in different PID namespaces, synchronise one ring. */
static void namespaces_case(void) {
    struct port a = port_open("lan0:a"), b = port_open("lan0:b");
    struct turns *turns = mmap(NULL, sizeof(*turns), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(turns != MAP_FAILED);
    pid_t parker = alone_in_namespace(parks, turns, &a, &b), sender = alone_in_namespace(sends_meanwhile, turns, &a, &b);
    reap(sender);
    reap(parker);
}

struct pair {
    int tx, rx;
};

static void *syncs_both(void *argument) {
    struct pair *pair = argument;
    while (!stop)
        CHECK(ioctl(pair->tx, NM_TXSYNC, NULL) == 0 && ioctl(pair->rx, NM_RXSYNC, NULL) == 0);
    return NULL;
}

static void transfer(struct port *a, struct port *b) {
    for (uint32_t at = 0; at < 60000; at += 60) {
        send_frames(a, 1, at, 60);
        expect(b, at, 60);
        /* Gives the slots back: 63 frames fit. */
        CHECK(ioctl(b->fd, NM_RXSYNC, NULL) == 0);
    }
}

static struct port small(const char *name) {
    return port_make(name, (struct nm_register){.tx_slots = 64, .rx_slots = 64});
}

/* Another thread synchronises the same rings by descriptors of its own. */
static void two_descriptors_case(void) {
    struct port a = small("lan0:a"), b = small("lan0:b"), same_a = small("lan0:a"), same_b = small("lan0:b");
    struct pair pair = {same_a.fd, same_b.fd};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, syncs_both, &pair) == 0);
    transfer(&a, &b);
    stop = 1;
    CHECK(pthread_join(thread, NULL) == 0);
}

/* A child synchronises the rings of its parent. */
static void two_processes_case(void) {
    struct port a = small("lan0:a"), b = small("lan0:b");
    pid_t child = fork();
    if (child == 0) {
        /* A parent that fails leaves nobody behind. */
        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        struct pair pair = {a.fd, b.fd};
        syncs_both(&pair);
    }
    transfer(&a, &b);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

static void ends_thread(int number) {
    (void)number;
    syscall(SYS_exit, 0);
}

static void *syncs_until_it_ends(void *argument) {
    struct port *port = argument;
    parked = 1;
    for (double end = now() + PATIENCE; now() < end;)
        ioctl(port->fd, NM_TXSYNC, NULL);
    return NULL;
}

/* A thread ends wherever it is in a synchronisation. */
static void dead_thread_case(void) {
    struct port a = port_open("lan0:a"), b = port_open("lan0:b");
    on(SIGUSR2, ends_thread);
    for (uint32_t at = 0; at < 300; at++) {
        pthread_t thread;
        parked = 0;
        CHECK(pthread_create(&thread, NULL, syncs_until_it_ends, &a) == 0);
        while (!parked)
            sched_yield();
        CHECK(pthread_kill(thread, SIGUSR2) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(put(a.tx[0], 1, at, 1) == 1 && ioctl(a.fd, NM_TXSYNC, NULL) == 0);
        expect(&b, at, 1);
    }
}

static void asks(int fd, const char *name, uint32_t slots) {
    for (int i = 0; i < 3000; i++) {
        struct nm_port_info info = {0};
        int error = control(fd, name, REQ_PORT_INFO, &info, NULL);
        if (error || info.tx_slots != slots)
            FAIL("%s: errno %d, %u slots instead of %u", name, error, info.tx_slots, slots);
    }
}

/* A parent and its child ask about different ports on one descriptor. */
static void own_answers_case(void) {
    struct port a = port_make("lan0:a", (struct nm_register){.tx_slots = 128}), b = port_make("lan0:b", (struct nm_register){.tx_slots = 256});
    CHECK(a.fd != b.fd);
    int fd = open("/dev/netmap", O_RDWR);
    pid_t child = fork();
    asks(fd, child == 0 ? "lan0:a" : "lan0:b", child == 0 ? 128 : 256);
    if (child == 0)
        _exit(0);
    reap(child);
}

/* Sends a request as another process that shares the descriptor would, and does not take the answer. */
static void leave_an_answer(int fd, uint32_t number) {
    unsigned char request[128] = {0x72, 0x6e, 0x6d, 0x71, 2, 0, 5, 0};
    memcpy(request + 8, &number, 4);
    memcpy(request + 120, "of other", 8);
    CHECK(send(fd, request, sizeof(request), 0) == sizeof(request));
    struct pollfd answered = {.fd = fd, .events = POLLIN};
    CHECK(syscall(SYS_poll, &answered, 1, 10000) == 1);
}

static void left_answers_case(void) {
    struct port a = port_make("lan0:a", (struct nm_register){.tx_slots = 128});
    leave_an_answer(a.fd, 9999);
    struct pollfd fd = {.fd = a.fd, .events = POLLIN};
    struct timespec before, after;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    CHECK(poll(&fd, 1, 300) == 0);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    CHECK((after.tv_sec - before.tv_sec) * 1e9 + after.tv_nsec - before.tv_nsec < 1e8);
    leave_an_answer(a.fd, 0);
    /* A wait for an answer that does not come would end with ENXIO. */
    struct nm_port_info info = {0};
    CHECK(control(a.fd, "lan0:a", REQ_PORT_INFO, &info, NULL) == 0 && info.tx_slots == 128);
    asks(a.fd, "lan0:a", 128);
    CHECK(ioctl(a.fd, NM_TXSYNC, NULL) == 0);
}

static void *opens(void *argument) {
    (void)argument;
    CHECK(open("/dev/netmap", O_RDWR) >= 0);
    return NULL;
}

/* Each process forks while its thread opens for the first time. */
static void fork_open_case(void) {
    for (int round = 0; round < 500; round++) {
        pid_t fresh = fork();
        if (fresh == 0) {
            alarm(2 * PATIENCE);
            pthread_t thread;
            CHECK(pthread_create(&thread, NULL, opens, NULL) == 0);
            for (volatile int i = 0; i < round * 200; i++)
                ;
            pid_t child = fork();
            if (child == 0) {
                alarm(2 * PATIENCE);
                opens(NULL);
                _exit(0);
            }
            CHECK(pthread_join(thread, NULL) == 0);
            reap(child);
            _exit(0);
        }
        reap(fresh);
    }
}

static int mistake(int fd) {
    struct nm_register reg = {.mode = MODE_HOST};
    return control(fd, "lan0:a", REQ_REGISTER, &reg, NULL);
}

static void *mistakes(void *argument) {
    while (!stop)
        CHECK(mistake(*(int *)argument) == EINVAL);
    return NULL;
}

/* Children register while their parent's other thread does. */
static void fork_register_case(void) {
    int busy = open("/dev/netmap", O_RDWR), fd = open("/dev/netmap", O_RDWR);
    CHECK(busy >= 0 && fd >= 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, mistakes, &busy) == 0);
    for (int round = 0; round < 1000; round++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(2 * PATIENCE);
            _exit(mistake(fd) == EINVAL ? 0 : 1);
        }
        reap(child);
    }
    stop = 1;
    CHECK(pthread_join(thread, NULL) == 0);
}

/* The room for a mutex in a ring is the program's. */
static void semaphore_case(void) {
    struct port a = port_open("lan0:a"), b = port_open("lan0:b");
    sem_t *semaphore = (sem_t *)a.tx[0]->sem;
    CHECK(sem_init(semaphore, 1, 1) == 0);
    /* A process that waits for the program's semaphore needs a second for each synchronisation. The machine may need some seconds for
     * some of them, and not for all. */
    double end = now() + PATIENCE, begin;
    uint32_t sent = 0;
    do {
        CHECK((begin = now()) < end);
        for (int i = 0; i < 10; i++)
            send_frames(&a, 1, sent++, 1);
        expect(&b, sent - 10, 10);
    } while (now() - begin >= 5);
    int value;
    CHECK(sem_getvalue(semaphore, &value) == 0 && value == 1 && sem_trywait(semaphore) == 0);
    for (int i = 0; i < 10; i++)
        send_frames(&a, 1, sent++, 1);
    CHECK(sem_trywait(semaphore) == -1 && errno == EAGAIN && sem_post(semaphore) == 0);
    expect(&b, sent - 10, 10);
}

static volatile int victim = -1;
static pthread_t waiting;

static void closes(int number) {
    (void)number;
    if (victim >= 0)
        CHECK(close(victim) == 0);
    victim = -1;
}

static void *signals(void *argument) {
    while (!stop) {
        CHECK(pthread_kill(waiting, SIGUSR1) == 0);
        for (volatile int i = 0; i < 3000; i++)
            ;
    }
    return argument;
}

static void signal_close_case(void) {
    struct port a = port_open("lan0:a"), b = port_open("lan0:b");
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 1}, events[8];
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, b.fd, &event) == 0);
    waiting = pthread_self();
    on(SIGUSR1, closes);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, signals, NULL) == 0);
    /* Often, but not for ever where threads that share a processor spin for each other. */
    double enough = now() + 5;
    for (int i = 0; i < 20000 && now() < enough; i++) {
        int copy = dup(a.fd);
        CHECK(copy >= 0);
        victim = copy;
        double end = now() + PATIENCE;
        while (victim >= 0) {
            int found = epoll_wait(set, events, 8, 0);
            CHECK(found == 0 || (found < 0 && errno == EINTR));
            CHECK(now() < end);
        }
    }
    stop = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    send_frames(&a, 1, 0, 1);
    CHECK(epoll_wait(set, events, 8, PATIENCE_MS) == 1 && events[0].data.u64 == 1);
    expect(&b, 0, 1);
}

static sigjmp_buf back;
static volatile int leaving, is_set;
static struct port *left_port;
static int left_set;

static void leaves(int number) {
    (void)number;
    if (!leaving)
        return;
    leaving = 0;
    siglongjmp(back, 1);
}

/* A signal for each call that the main thread wants to leave. */
static void *interrupts(void *argument) {
    while (!stop) {
        for (volatile int i = 0; leaving && i < 2000; i++)
            ;
        if (leaving)
            CHECK(pthread_kill(waiting, SIGUSR1) == 0);
        sched_yield();
    }
    return argument;
}

static void one_call(void) {
    struct epoll_event event;
    if (is_set)
        epoll_wait(left_set, &event, 1, 0);
    else
        ioctl(left_port->fd, NM_TXSYNC, NULL);
}

/* Leaves a call by a jump out of a signal handler, somewhere. */
static void leave_a_call(void) {
    if (sigsetjmp(back, 1) == 0) {
        leaving = 1;
        for (;;)
            one_call();
    }
}

static void *drains(void *argument) {
    drain(argument, 0);
    return argument;
}

/* Synchronises with a deeper stack than that of the call that was left. */
static __attribute__((noinline)) void drain_deep(struct port *port) {
    char deep[1 << 16];
    memset(deep, 0, sizeof(deep));
    drain(port, 0);
    CHECK(memchr(deep, 1, sizeof(deep)) == NULL);
}

static void left_call_case(void) {
    struct port a = port_open("lan0:a"), b = port_open("lan0:b");
    struct epoll_event event;
    left_port = &a;
    left_set = epoll_create1(0);
    event = (struct epoll_event){.events = EPOLLIN, .data.u64 = 1};
    CHECK(epoll_ctl(left_set, EPOLL_CTL_ADD, b.fd, &event) == 0);
    waiting = pthread_self();
    /* A handler on a stack of its own, every other time. */
    stack_t other = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    CHECK(sigaltstack(&other, NULL) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, interrupts, NULL) == 0);
    uint32_t at = 0;
    for (; at < 200; at++) {
        struct sigaction action = {.sa_handler = leaves, .sa_flags = at % 2 ? SA_ONSTACK : 0};
        CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
        leave_a_call();
        CHECK(put(a.tx[0], 1, at, 1) == 1);
        /* The frame goes with one synchronisation of the thread that left, or soon with those of a deeper call, or of another thread. */
        if (at % 100 == 98) {
            drain_deep(&a);
        } else if (at % 100 == 99) {
            pthread_t helper;
            CHECK(pthread_create(&helper, NULL, drains, &a) == 0 && pthread_join(helper, NULL) == 0);
        } else {
            one_call();
        }
        expect(&b, at, 1);
    }
    is_set = 1;
    for (; at < 260; at++) {
        leave_a_call();
        send_frames(&a, 1, at, 1);
        double end = now() + PATIENCE;
        while (epoll_wait(left_set, &event, 1, 0) == 0)
            CHECK(now() < end);
        expect(&b, at, 1);
    }
    stop = 1;
    CHECK(pthread_join(thread, NULL) == 0);
}

static void nothing(int number) {
    (void)number;
}

static double begun;

/* From now on signals interrupt every sleep. */
static void interrupt_all(void) {
    on(SIGPROF, nothing);
    on(SIGVTALRM, nothing);
    on(SIGUSR1, nothing);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    timer_t timer;
    struct itimerspec each = {.it_value.tv_nsec = 1000000, .it_interval.tv_nsec = 200000000};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &each, NULL) == 0);
    begun = now();
}

static void in_time(int error, int wanted) {
    if (error != wanted || now() - begun < 9 || now() - begun > PATIENCE)
        FAIL("errno %d after %.1f seconds", error, now() - begun);
}

/* The daemon accepts no connection, and others wait for it to do so. */
static void late_open_case(void) {
    interrupt_all();
    for (int error = 0; error == 0;) {
        begun = now();
        error = open("/dev/netmap", O_RDWR) < 0 ? errno : 0;
        in_time(error, ENXIO);
    }
}

static void late_answer_case(void) {
    int fd = open("/dev/netmap", O_RDWR);
    CHECK(fd >= 0);
    interrupt_all();
    struct nm_port_info info = {0};
    in_time(control(fd, "lan0:a", REQ_PORT_INFO, &info, NULL), ENXIO);
}

static int asked_fd, answered;

static void asks_in_handler(int number) {
    (void)number;
    struct nm_port_info info = {0};
    int error = control(asked_fd, "lan0:a", REQ_PORT_INFO, &info, NULL);
    if (error != EBUSY)
        FAIL("errno %d", error);
    answered++;
}

/* Signal handlers ask the daemon again and again while their own thread waits for an answer. */
static void handler_asks_case(void) {
    asked_fd = open("/dev/netmap", O_RDWR);
    CHECK(asked_fd >= 0);
    on(SIGALRM, asks_in_handler);
    begun = now();
    struct itimerval each = {{0, 300000}, {0, 300000}};
    CHECK(setitimer(ITIMER_REAL, &each, NULL) == 0);
    struct nm_port_info info = {0};
    in_time(control(asked_fd, "lan0:a", REQ_PORT_INFO, &info, NULL), ENXIO);
    CHECK(answered > 0);
    CHECK(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL) == 0);
}

static int unknown_set;
static volatile pid_t waiter_tid;

static void *waits_for_the_unknown(void *argument) {
    struct epoll_event event;
    waiter_tid = gettid();
    CHECK(epoll_wait(unknown_set, &event, 1, 0) == 1 && event.events == EPOLLERR);
    return argument;
}

/* A thread asks the daemon for the registration of a descriptor in a set. Another thread changes the set meanwhile. */
static void late_recall_case(void) {
    int fd = open("/dev/netmap", O_RDWR);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(fd >= 0 && (unknown_set = epoll_create1(0)) >= 0);
    CHECK(epoll_ctl(unknown_set, EPOLL_CTL_ADD, fd, &event) == 0);
    /* The change takes as long as the wait if it waits for it. The machine may stand still for as long, but not each time. */
    double end = now() + PATIENCE, changed;
    do {
        begun = now();
        CHECK(begun < end);
        waiter_tid = 0;
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, waits_for_the_unknown, NULL) == 0);
        while (waiter_tid == 0)
            sched_yield();
        sleeps(&waiter_tid);
        CHECK(epoll_ctl(unknown_set, EPOLL_CTL_MOD, fd, &event) == 0);
        changed = now();
        CHECK(pthread_join(thread, NULL) == 0);
        in_time(ENXIO, ENXIO);
    } while (changed - begun >= 5);
}

/* The list of ports never ends. */
static void late_list_case(void) {
    int fd = open("/dev/netmap", O_RDWR);
    CHECK(fd >= 0);
    interrupt_all();
    struct nm_list list = {0};
    in_time(control(fd, "lan9:none", REQ_LIST, &list, NULL), ENXIO);
}

/* The peer of a socket that was passed is no daemon. By the path that it has chosen the daemon can be found by now. */
static void disguised_case(void) {
    char folder[] = "/tmp/ringway-XXXXXX";
    const char *daemon = getenv("RINGWAY_ATTACH_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    CHECK(daemon && mkdtemp(folder));
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/x", folder);
    int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0), client = socket(AF_UNIX, SOCK_SEQPACKET, 0), pair[2];
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(listener, 1) == 0);
    CHECK(connect(client, (struct sockaddr *)&address, sizeof(address)) == 0);
    CHECK(unlink(address.sun_path) == 0 && symlink(daemon, address.sun_path) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pass(pair[0], client);
    int received = passed(pair[1]);
    CHECK(unlink(address.sun_path) == 0 && rmdir(folder) == 0);
    struct nm_port_info info = {0};
    CHECK(control(received, "lan0:a", REQ_PORT_INFO, &info, NULL) == ENOTTY);
}

/* A descriptor that was passed is recognised, in the first use of the library, without memory from the program's allocator: the thread may be a
 * signal handler in malloc. */
static void passed_quietly_case(void) {
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t child = fork();
    if (child == 0) {
        int before = allocations, received = passed(pair[1]);
        CHECK(allocations == before);
        struct nm_port_info info = {0};
        CHECK(control(received, "lan0:a", REQ_PORT_INFO, &info, NULL) == 0 && info.tx_slots == 128);
        _exit(0);
    }
    struct port a = port_make("lan0:a", (struct nm_register){.tx_slots = 128});
    pass(pair[0], a.fd);
    reap(child);
}

static const struct test_case cases[] = {
    {"threads-sync", threads_sync_case}, {"two-descriptors", two_descriptors_case}, {"two-processes", two_processes_case},
    {"dead-thread", dead_thread_case}, {"own-answers", own_answers_case}, {"left-answers", left_answers_case},
    {"fork-open", fork_open_case}, {"signal-close", signal_close_case}, {"late-open", late_open_case},
    {"left-call", left_call_case}, {"namespaces", namespaces_case},
    {"handler-asks", handler_asks_case}, {"fork-register", fork_register_case}, {"semaphore", semaphore_case},
    {"late-answer", late_answer_case}, {"late-list", late_list_case}, {"late-recall", late_recall_case},
    {"disguised", disguised_case}, {"passed-quietly", passed_quietly_case},
};

int main(int argc, char **argv) {
    return run_case(cases, sizeof(cases) / sizeof(cases[0]), argc, argv);
}
