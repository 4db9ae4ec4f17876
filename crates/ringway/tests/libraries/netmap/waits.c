/* Cases of waits: `cases NAME`. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "port.h"

/* A thread that waits for one event of a set. */
struct waiter {
    pthread_t thread;
    int set, found;
    volatile pid_t tid;
    struct epoll_event event;
};

static void *waits(void *argument) {
    struct waiter *waiter = argument;
    waiter->tid = gettid();
    waiter->found = epoll_wait(waiter->set, &waiter->event, 1, PATIENCE_MS);
    return NULL;
}

static void waiter_start(struct waiter *waiter, int set) {
    *waiter = (struct waiter){.set = set};
    CHECK(pthread_create(&waiter->thread, NULL, waits, waiter) == 0);
    while (waiter->tid == 0)
        sched_yield();
    sleeps(&waiter->tid);
}

static void add(int set, int fd, uint32_t events, uint64_t data) {
    struct epoll_event event = {.events = events, .data.u64 = data};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
}

static void silent_pipe(int set) {
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    add(set, pipes[0], EPOLLIN, 5);
}

/* The thread hears of the frame well before its limit, with the program's own data. */
static void hears(struct waiter *waiter, struct port *from) {
    double before = now();
    send_frames(from, 1, 0, 1);
    CHECK(pthread_join(waiter->thread, NULL) == 0);
    CHECK(waiter->found == 1 && waiter->event.data.u64 == 7 && waiter->event.events == EPOLLIN);
    CHECK(now() - before < PATIENCE / 2);
}

static void added_case(void) {
    struct port a = port_open("lan0:a"), b = port_open("lan0:b"), c = port_open("lan0:c");
    int set = epoll_create1(0);
    silent_pipe(set);
    add(set, c.fd, EPOLLPRI, 6);
    struct waiter waiter;
    waiter_start(&waiter, set);
    add(set, b.fd, EPOLLIN, 7);
    hears(&waiter, &a);
}

/* The set has no netmap descriptor when the thread goes to sleep. Often: the thread wakes up while the set becomes known. */
static void first_case(void) {
    struct port a = port_open("lan0:a"), b = port_open("lan0:b");
    for (int round = 0; round < 50; round++) {
        int set = epoll_create1(0);
        silent_pipe(set);
        struct waiter waiter;
        waiter_start(&waiter, set);
        add(set, b.fd, EPOLLIN, 7);
        hears(&waiter, &a);
        CHECK(take(b.rx[0], 0) == 1 && close(set) == 0);
    }
}

/* A descriptor that this process had not asked about is added: another one has registered it. */
static void unknown_case(void) {
    struct port a = port_open("lan0:a"), b = port_open("lan0:b"), c = port_open("lan0:c");
    int set = epoll_create1(0), pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    silent_pipe(set);
    add(set, c.fd, EPOLLPRI, 6);
    struct waiter waiter;
    waiter_start(&waiter, set);
    pass(pair[0], b.fd);
    add(set, passed(pair[1]), EPOLLIN | EPOLLONESHOT, 7);
    sleeps(&waiter.tid);
    hears(&waiter, &a);

    int fd = open("/dev/netmap", O_RDWR);
    pid_t child = fork();
    if (child == 0) {
        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        struct nm_register reg = {.mode = MODE_ALL};
        CHECK(control(fd, "lan0:d", REQ_REGISTER, &reg, NULL) == 0 && write(pair[0], "x", 1) == 1);
        pause();
        _exit(1);
    }
    char byte;
    CHECK(read(pair[1], &byte, 1) == 1);
    waiter_start(&waiter, set);
    add(set, fd, EPOLLIN | EPOLLONESHOT, 7);
    sleeps(&waiter.tid);
    hears(&waiter, &a);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

static void *polls_for_ever(void *argument) {
    struct waiter *waiter = argument;
    struct pollfd fd = {.fd = waiter->set, .events = POLLIN};
    waiter->tid = gettid();
    waiter->found = poll(&fd, 1, -1);
    return NULL;
}

/* A thread sleeps for a descriptor that has no registration. It gets one meanwhile, for which another thread sleeps, too. */
static void unregistered_case(void) {
    struct port a = port_open("lan0:a");
    struct nm_register reg = {.mode = MODE_ALL};
    struct epoll_event event;
    int set = epoll_create1(0), pipes[2], fd = open("/dev/netmap", O_RDWR);
    CHECK(fd >= 0 && pipe(pipes) == 0);
    add(set, pipes[0], EPOLLIN | EPOLLONESHOT, 5);
    add(set, fd, EPOLLIN | EPOLLET, 7);
    CHECK(epoll_wait(set, &event, 1, 0) == 1 && event.data.u64 == 7 && event.events == EPOLLERR);
    struct waiter first, second = {.set = fd};
    waiter_start(&first, set);
    CHECK(control(fd, "lan0:b", REQ_REGISTER, &reg, NULL) == 0);
    CHECK(pthread_create(&second.thread, NULL, polls_for_ever, &second) == 0);
    while (second.tid == 0)
        sched_yield();
    sleeps(&second.tid);
    CHECK(write(pipes[1], "x", 1) == 1);
    CHECK(pthread_join(first.thread, NULL) == 0 && first.found == 1 && first.event.data.u64 == 5);
    send_frames(&a, 1, 0, 1);
    CHECK(pthread_join(second.thread, NULL) == 0 && second.found == 1);

    /* The first thread sees the frame itself, too. */
    CHECK((fd = open("/dev/netmap", O_RDWR)) >= 0 && (set = epoll_create1(0)) >= 0);
    add(set, fd, EPOLLIN | EPOLLET, 7);
    CHECK(epoll_wait(set, &event, 1, 0) == 1 && event.events == EPOLLERR);
    waiter_start(&first, set);
    reg = (struct nm_register){.mode = MODE_ALL};
    CHECK(control(fd, "lan0:c", REQ_REGISTER, &reg, NULL) == 0);
    hears(&first, &a);
}

static void modified_case(void) {
    struct port a = port_open("lan0:a"), b = port_open("lan0:b");
    int set = epoll_create1(0);
    add(set, b.fd, EPOLLPRI, 6);
    struct waiter waiter;
    waiter_start(&waiter, set);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7};
    CHECK(epoll_ctl(set, EPOLL_CTL_MOD, b.fd, &event) == 0);
    hears(&waiter, &a);
}

static void sends_later(const char *name) {
    if (fork() != 0)
        return;
    struct port a = port_open(name);
    usleep(200000);
    send_frames(&a, 1, 0, 1);
    drain(&a, 0);
    _exit(0);
}

static void polled_case(void) {
    struct port b = port_open("lan0:b");
    int set = epoll_create1(0), pipes[2];
    CHECK(pipe(pipes) == 0);
    add(set, b.fd, EPOLLIN, 7);
    add(set, pipes[0], EPOLLIN, 8);
    struct pollfd fd = {.fd = set, .events = POLLIN};
    CHECK(poll(&fd, 1, 50) == 0 && fd.revents == 0);
    sends_later("lan0:a");
    double before = now();
    CHECK(poll(&fd, 1, PATIENCE_MS) == 1 && fd.revents == POLLIN && now() - before < PATIENCE / 2);
    struct epoll_event events[4];
    CHECK(epoll_wait(set, events, 4, 0) == 1 && events[0].data.u64 == 7);
    CHECK(take(b.rx[0], 0) == 1 && poll(&fd, 1, 0) == 0);
    CHECK(write(pipes[1], "x", 1) == 1);
    before = now();
    CHECK(poll(&fd, 1, PATIENCE_MS) == 1 && fd.revents == POLLIN && now() - before < PATIENCE / 2);
    fd_set read;
    FD_ZERO(&read);
    FD_SET(set, &read);
    CHECK(select(set + 1, &read, NULL, NULL, NULL) == 1 && FD_ISSET(set, &read));
    CHECK(epoll_wait(set, events, 4, 0) == 1 && events[0].data.u64 == 8);
    CHECK(wait(NULL) > 0);
}

static void nested_case(void) {
    struct port b = port_open("lan0:b");
    int inner = epoll_create1(0), outer = epoll_create1(0);
    add(inner, b.fd, EPOLLIN, 9);
    add(outer, inner, EPOLLIN, 7);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(inner, EPOLL_CTL_ADD, outer, &event) == -1 && errno == ELOOP);
    CHECK(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event) == -1 && errno == EEXIST);
    CHECK(epoll_wait(outer, &event, 1, 20) == 0);
    sends_later("lan0:a");
    double before = now();
    CHECK(epoll_wait(outer, &event, 1, PATIENCE_MS) == 1 && event.data.u64 == 7 && now() - before < PATIENCE / 2);
    CHECK(epoll_wait(inner, &event, 1, 0) == 1 && event.data.u64 == 9);
    CHECK(take(b.rx[0], 0) == 1);
    CHECK(epoll_wait(outer, &event, 1, 20) == 0);
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    add(inner, pipes[0], EPOLLIN, 8);
    CHECK(write(pipes[1], "x", 1) == 1);
    CHECK(epoll_wait(outer, &event, 1, PATIENCE_MS) == 1 && event.data.u64 == 7);
    CHECK(epoll_ctl(outer, EPOLL_CTL_DEL, inner, NULL) == 0);
    CHECK(epoll_wait(outer, &event, 1, 20) == 0);
    CHECK(wait(NULL) > 0);
}

static pthread_barrier_t barrier;
static int raced;

static void *adds(void *argument) {
    int fd = (int)(intptr_t)argument;
    pthread_barrier_wait(&barrier);
    add(raced, fd, EPOLLIN, fd);
    return NULL;
}

static void race_case(void) {
    struct port a = port_open("lan0:a"), b = port_open("lan0:b"), c = port_open("lan0:c");
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    send_frames(&c, 1, 0, 1);
    int fds[] = {a.fd, b.fd};
    for (int i = 0; i < 2; i++) {
        struct pollfd fd = {.fd = fds[i], .events = POLLIN};
        CHECK(poll(&fd, 1, PATIENCE_MS) == 1);
    }
    for (int round = 0; round < 3000; round++) {
        raced = epoll_create1(0);
        pthread_t threads[2];
        for (int i = 0; i < 2; i++)
            CHECK(pthread_create(&threads[i], NULL, adds, (void *)(intptr_t)fds[i]) == 0);
        for (int i = 0; i < 2; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
        struct epoll_event events[4];
        int found = epoll_wait(raced, events, 4, 0);
        if (found != 2)
            FAIL("%d of 2 in round %d", found, round);
        close(raced);
    }
}

static void no_set_case(void) {
    struct port a = port_open("lan0:a");
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    struct epoll_event event = {.events = EPOLLIN};
    for (int i = 0; i < 100; i++) {
        CHECK(epoll_ctl(-1, EPOLL_CTL_ADD, a.fd, &event) == -1 && errno == EBADF);
        CHECK(epoll_ctl(pipes[0], EPOLL_CTL_ADD, a.fd, &event) == -1 && errno == EINVAL);
    }
    int set = epoll_create1(0);
    add(set, a.fd, EPOLLIN, 1);
    CHECK(epoll_wait(set, &event, 1, 0) == 0);
}

static void fair_case(void) {
    struct port a = port_open("lan0:a"), b = port_open("lan0:b");
    int set = epoll_create1(0), pipes[2], heard[4] = {0};
    CHECK(pipe(pipes) == 0 && write(pipes[1], "x", 1) == 1);
    add(set, a.fd, EPOLLOUT, 1);
    add(set, b.fd, EPOLLOUT, 2);
    add(set, pipes[0], EPOLLIN, 3);
    for (int i = 0; i < 300; i++) {
        struct epoll_event event;
        int found = epoll_wait(set, &event, 1, 1000);
        CHECK(found == 1 && event.data.u64 >= 1 && event.data.u64 <= 3);
        heard[event.data.u64]++;
    }
    CHECK(heard[1] > 80 && heard[2] > 80 && heard[3] > 80);
}

/* Sets at the ends of pages. */
static void select_case(void) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max < 8192 ? limit.rlim_max : 8192;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    struct port b = port_open("lan0:b");
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && munmap(pages + 4096, 4096) == 0);
    fd_set *set = (fd_set *)(pages + 4096 - sizeof(fd_set));
    struct timeval time = {.tv_usec = 20000};
    FD_ZERO(set);
    FD_SET(b.fd, set);
    CHECK(select(getdtablesize(), set, NULL, NULL, &time) == 0);
    int pipes[2];
    CHECK(pipe(pipes) == 0 && write(pipes[1], "x", 1) == 1);
    FD_SET(pipes[0], set);
    CHECK(select(getdtablesize(), set, NULL, NULL, NULL) == 1 && FD_ISSET(pipes[0], set) && !FD_ISSET(b.fd, set));
    /* Microseconds beyond a second are carried over. */
    FD_ZERO(set);
    FD_SET(b.fd, set);
    time = (struct timeval){.tv_usec = 1050000};
    double before = now();
    CHECK(select(b.fd + 1, set, NULL, NULL, &time) == 0 && now() - before > 1.04);
    time = (struct timeval){.tv_usec = -1};
    CHECK(select(b.fd + 1, set, NULL, NULL, &time) == -1 && errno == EINVAL);
}

/* A hangup of a descriptor in no set that hangups concern ends no wait. */
static void hangup_case(void) {
    struct port a = port_open("lan0:a"), b = port_open("lan0:b");
    int pipes[2];
    CHECK(pipe(pipes) == 0 && close(pipes[1]) == 0);
    for (int sends = 0; sends < 2; sends++) {
        fd_set read, except;
        FD_ZERO(&read);
        FD_SET(b.fd, &read);
        FD_ZERO(&except);
        FD_SET(pipes[0], &except);
        int highest = b.fd > pipes[0] ? b.fd : pipes[0];
        if (!sends) {
            struct timeval time = {.tv_usec = 200000};
            double before = now();
            CHECK(select(highest + 1, &read, NULL, &except, &time) == 0 && now() - before >= 0.2);
        } else {
            send_frames(&a, 1, 0, 1);
            CHECK(select(highest + 1, &read, NULL, &except, NULL) == 1);
            CHECK(FD_ISSET(b.fd, &read) && !FD_ISSET(pipes[0], &except));
        }
    }
}

static struct port renewed;
static volatile pid_t old_tid, new_tid;
static double woken;

static void interrupts(int number) {
    (void)number;
}

static void *polls_the_old(void *unused) {
    old_tid = gettid();
    struct pollfd fd = {.fd = renewed.fd, .events = POLLIN};
    /* A signal ends it. */
    poll(&fd, 1, PATIENCE_MS);
    return unused;
}

static void *polls_the_new(void *unused) {
    new_tid = gettid();
    struct pollfd fd = {.fd = renewed.fd, .events = POLLIN};
    CHECK(poll(&fd, 1, PATIENCE_MS) == 1 && fd.revents == POLLIN);
    woken = now();
    return unused;
}

/* A thread sleeps for a descriptor while another one closes it and opens a port of the same number. */
static void renewed_case(void) {
    struct port a = port_open("lan0:a");
    renewed = port_open("lan0:b");
    int number = renewed.fd;
    pthread_t old, new;
    CHECK(pthread_create(&old, NULL, polls_the_old, NULL) == 0);
    while (old_tid == 0)
        sched_yield();
    sleeps(&old_tid);
    port_close(&renewed);
    renewed = port_open("lan0:c");
    CHECK(renewed.fd == number);
    CHECK(pthread_create(&new, NULL, polls_the_new, NULL) == 0);
    while (new_tid == 0)
        sched_yield();
    sleeps(&new_tid);
    on(SIGUSR1, interrupts);
    CHECK(pthread_kill(old, SIGUSR1) == 0 && pthread_join(old, NULL) == 0);
    double sent = now();
    send_frames(&a, 1, 0, 1);
    CHECK(pthread_join(new, NULL) == 0 && woken - sent < PATIENCE / 2);
}

static void pointers_case(void) {
    struct port a = port_open("lan0:a");
    int set = epoll_create1(0);
    char *volatile gone = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(munmap(gone, 4096) == 0);
    char *volatile small = (char *)8;
    CHECK(open(small, O_RDONLY) == -1 && errno == EFAULT);
    CHECK(open(gone, O_RDONLY) == -1 && errno == EFAULT);
    CHECK(openat(AT_FDCWD, gone, O_RDONLY) == -1 && errno == EFAULT);
    CHECK(open(small, O_RDWR | O_CREAT, 0600) == -1 && errno == EFAULT);
    CHECK(poll((struct pollfd *)small, 1, 0) == -1 && errno == EFAULT);
    CHECK(select(a.fd + 1, (fd_set *)small, NULL, NULL, NULL) == -1 && errno == EFAULT);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, a.fd, (struct epoll_event *)gone) == -1 && errno == EFAULT);
    add(set, a.fd, EPOLLIN, 1);
    CHECK(epoll_ctl(set, EPOLL_CTL_MOD, a.fd, NULL) == -1 && errno == EFAULT);
    CHECK(epoll_wait(set, (struct epoll_event *)small, 1, 0) == -1 && errno == EFAULT);
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, a.fd, (struct epoll_event *)gone) == 0);
    CHECK(ioctl(a.fd, NM_CONTROL, gone) == -1 && errno == EFAULT);
}

static struct port cancelled;
static int cancelled_set;
static volatile pid_t cancelled_tid;

static void *polls(void *unused) {
    cancelled_tid = gettid();
    struct pollfd fd = {.fd = cancelled.fd, .events = POLLIN};
    poll(&fd, 1, -1);
    return unused;
}

static void *selects(void *unused) {
    cancelled_tid = gettid();
    fd_set set;
    FD_ZERO(&set);
    FD_SET(cancelled.fd, &set);
    select(cancelled.fd + 1, &set, NULL, NULL, NULL);
    return unused;
}

static void *epolls(void *unused) {
    cancelled_tid = gettid();
    struct epoll_event event;
    epoll_wait(cancelled_set, &event, 1, -1);
    return unused;
}

/* A wait that finds something at once is a cancellation point, too. */
static void *polls_for_room(void *unused) {
    for (;;) {
        struct pollfd fd = {.fd = cancelled.fd, .events = POLLOUT};
        poll(&fd, 1, -1);
        cancelled_tid = gettid();
    }
    return unused;
}

static void cancel_case(void) {
    struct port a = port_open("lan0:a");
    cancelled = port_open("lan0:b");
    cancelled_set = epoll_create1(0);
    add(cancelled_set, cancelled.fd, EPOLLIN, 7);
    void *(*ways[])(void *) = {polls, selects, epolls, polls_for_room};
    /* More often than there are places for threads that sleep. */
    for (int round = 0; round < 400; round++) {
        pthread_t thread;
        cancelled_tid = 0;
        CHECK(pthread_create(&thread, NULL, ways[round % 4], NULL) == 0);
        while (cancelled_tid == 0)
            sched_yield();
        if (round < 40 && round % 4 != 3)
            sleeps(&cancelled_tid);
        CHECK(pthread_cancel(thread) == 0);
        void *result;
        struct timespec limit;
        clock_gettime(CLOCK_REALTIME, &limit);
        limit.tv_sec += PATIENCE;
        CHECK(pthread_timedjoin_np(thread, &result, &limit) == 0 && result == PTHREAD_CANCELED);
    }
    /* Others wait as before. */
    struct waiter waiter;
    waiter_start(&waiter, cancelled_set);
    hears(&waiter, &a);
}

/* A close_range that the kernel refuses closes nothing. */
static void close_range_case(void) {
    struct port a = port_open("lan0:a"), b = port_open("lan0:b");
    CHECK(close_range(b.fd, b.fd, 1 << 10) == -1 && errno == EINVAL);
    CHECK(close_range(b.fd, b.fd - 1, 0) == -1 && errno == EINVAL);
    send_frames(&a, 1, 0, 1);
    struct pollfd fd = {.fd = b.fd, .events = POLLIN};
    CHECK(poll(&fd, 1, PATIENCE_MS) == 1 && fd.revents == POLLIN && take(b.rx[0], 0) == 1);
    CHECK(close_range(b.fd, b.fd, 0) == 0 && ioctl(b.fd, NM_RXSYNC, NULL) == -1 && errno == EBADF);
}

static void memory_limit(rlim_t bytes) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
    limit.rlim_cur = bytes;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

/* Memory that cannot be mapped: of a descriptor that was passed, and of a new registration, which leaves the port to others. */
static void unmapped_case(void) {
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    struct port a = port_open("lan0:a");
    pass(pair[0], a.fd);
    port_close(&a);
    int received = passed(pair[1]);
    memory_limit(1 << 20);
    struct nm_register reg = {.mode = MODE_ALL};
    CHECK(control(received, "lan0:b", REQ_REGISTER, &reg, NULL) == ENOMEM);
    memory_limit(RLIM_INFINITY);
    CHECK(control(received, "lan0:b", REQ_REGISTER, &reg, NULL) == EBUSY);
    CHECK(close(received) == 0);

    int fd = open("/dev/netmap", O_RDWR), other = open("/dev/netmap", O_RDWR);
    memory_limit(1 << 20);
    CHECK(control(fd, "lan0:c", REQ_REGISTER, &reg, NULL) == ENOMEM);
    memory_limit(RLIM_INFINITY);
    double end = now() + PATIENCE;
    int error;
    do {
        reg = (struct nm_register){.mode = MODE_ALL, .flags = REG_EXCLUSIVE};
        error = control(other, "lan0:c", REQ_REGISTER, &reg, NULL);
    } while (error == EBUSY && now() < end);
    CHECK(error == 0);
}

static const struct test_case cases[] = {
    {"unknown", unknown_case}, {"unregistered", unregistered_case}, {"added", added_case}, {"first", first_case}, {"modified", modified_case}, {"polled", polled_case},
    {"nested", nested_case}, {"race", race_case}, {"no-set", no_set_case}, {"fair", fair_case},
    {"select", select_case}, {"pointers", pointers_case}, {"cancel", cancel_case},
    {"close-range", close_range_case}, {"unmapped", unmapped_case},
    {"hangup", hangup_case}, {"renewed", renewed_case},
};

int main(int argc, char **argv) {
    return run_case(cases, sizeof(cases) / sizeof(cases[0]), argc, argv);
}
