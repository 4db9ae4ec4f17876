/* Cases of epoll sets: edges, errors and ends, sets of several processes and sets within sets: `epoll NAME`. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "port.h"

static void add(int set, int fd, uint32_t events, uint64_t data) {
    struct epoll_event event = {.events = events, .data.u64 = data};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
}

static void has_frame(struct port *port) {
    double end = now() + PATIENCE;
    do
        CHECK(ioctl(port->fd, NM_RXSYNC, NULL) == 0 && now() < end);
    while (port->rx[0]->head == port->rx[0]->tail);
}

/* The ring's `tail` has gone once around between two waits. */
static void lap_case(void) {
    struct port a = port_open("lan0:a"), b = port_make("lan0:b", (struct nm_register){.rx_slots = 16});
    uint32_t lap = b.rx[0]->num_slots;
    int set = epoll_create1(0);
    struct epoll_event event;
    add(set, b.fd, EPOLLIN | EPOLLET, 7);
    send_frames(&a, 1, 0, 1);
    CHECK(epoll_wait(set, &event, 1, PATIENCE_MS) == 1 && take(b.rx[0], 0) == 1);
    for (uint32_t at = 1; at < lap; at++) {
        send_frames(&a, 1, at, 1);
        expect(&b, at, 1);
    }
    send_frames(&a, 1, lap, 1);
    has_frame(&b);
    CHECK(epoll_wait(set, &event, 1, 2000) == 1 && event.events == EPOLLIN);
    CHECK(epoll_wait(set, &event, 1, 20) == 0);
    CHECK(take(b.rx[0], lap) == 1);
}

/* The wait looks several times. A ring that the first look resets is good at the next one. */
static void bad_ring_case(void) {
    struct port a = port_open("lan0:a");
    int set = epoll_create1(0), edges = epoll_create1(0);
    struct epoll_event event;
    add(set, a.fd, EPOLLIN, 7);
    add(edges, a.fd, EPOLLOUT | EPOLLET, 8);
    struct nm_ring *rx = a.rx[0], *tx = a.tx[0];
    for (int round = 0; round < 2; round++) {
        rx->head = rx->cur = ring_next(rx, rx->tail);
        CHECK(epoll_wait(set, &event, 1, PATIENCE_MS) == 1 && event.events == EPOLLERR && event.data.u64 == 7);
        CHECK(epoll_wait(set, &event, 1, 20) == 0);
    }
    CHECK(epoll_wait(edges, &event, 1, PATIENCE_MS) == 1 && event.events == EPOLLOUT);
    CHECK(epoll_wait(edges, &event, 1, 20) == 0);
    tx->head = 0xffffffff;
    CHECK(epoll_wait(edges, &event, 1, PATIENCE_MS) == 1 && event.events == (EPOLLOUT | EPOLLERR));
    CHECK(epoll_wait(edges, &event, 1, 20) == 0);
}

/* Says when it waits, without ever sleeping; the daemon is killed then. */
static void killed_busy_case(void) {
    struct port a = port_open("lan0:a");
    int inner = epoll_create1(0), set = epoll_create1(0);
    struct epoll_event event;
    add(inner, a.fd, EPOLLIN, 6);
    add(set, inner, EPOLLIN, 7);
    puts("waiting");
    fflush(stdout);
    int sets[] = {set, inner};
    for (int i = 0; i < 2; i++) {
        double end = now() + PATIENCE;
        int found;
        do
            found = epoll_wait(sets[i], &event, 1, 0);
        while (found == 0 && now() < end);
        CHECK(found == 1 && (event.events & (i == 0 ? EPOLLIN : EPOLLERR)));
    }
    CHECK(ioctl(a.fd, NM_RXSYNC, NULL) == -1 && errno == ENXIO);
}

/* A child adds its netmap descriptor to the set in which its parent waits. The parent knows of no such descriptor. */
static void forked_case(void) {
    struct port b = port_open("lan0:b");
    int set = epoll_create1(0), pipes[2], ready[2];
    CHECK(pipe(pipes) == 0 && pipe(ready) == 0);
    add(set, pipes[0], EPOLLIN, 5);
    pid_t child = fork();
    if (child == 0) {
        /* A parent that fails leaves nobody behind. */
        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        usleep(50000);
        add(set, b.fd, EPOLLIN, 7);
        CHECK(write(ready[1], "x", 1) == 1);
        pause();
        _exit(1);
    }
    struct epoll_event event = {0};
    double before = now();
    CHECK(epoll_wait(set, &event, 1, 1000) == 0 && now() - before >= 0.999);
    char byte;
    CHECK(read(ready[0], &byte, 1) == 1);
    struct timespec start, end;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    CHECK(epoll_wait(set, &event, 1, 500) == 0);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    CHECK((end.tv_sec - start.tv_sec) * 1e9 + end.tv_nsec - start.tv_nsec < 2.5e8);
    CHECK(write(pipes[1], "x", 1) == 1);
    CHECK(epoll_wait(set, &event, 1, PATIENCE_MS) == 1 && event.data.u64 == 5);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

/* The parent's set, and the number of a pipe by which the child says that it has added to it. */
static const int shared_set = 50, shared_ready = 51;

/* Another program, with its own addresses, adds its netmap descriptor to the set in which its parent waits. */
static void adds_case(void) {
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    struct port b = port_open("lan0:b");
    add(shared_set, b.fd, EPOLLIN, 7);
    CHECK(write(shared_ready, "x", 1) == 1);
    pause();
}

static void executed_case(void) {
    struct port a = port_open("lan0:a");
    int pipes[2], ready[2];
    CHECK(pipe(pipes) == 0 && pipe(ready) == 0);
    CHECK(dup2(epoll_create1(0), shared_set) == shared_set && dup2(ready[1], shared_ready) == shared_ready);
    add(shared_set, pipes[0], EPOLLIN, 5);
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "epoll", "adds", NULL);
        _exit(1);
    }
    char byte;
    struct pollfd said = {.fd = ready[0], .events = POLLIN};
    CHECK(poll(&said, 1, PATIENCE_MS) == 1 && read(ready[0], &byte, 1) == 1);
    struct epoll_event event = {0};
    CHECK(epoll_wait(shared_set, &event, 1, 200) == 0);
    CHECK(write(pipes[1], "x", 1) == 1);
    CHECK(epoll_wait(shared_set, &event, 1, PATIENCE_MS) == 1 && event.data.u64 == 5);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    port_close(&a);
}

static int closed_copy, closed_result;
static volatile pid_t closed_tid;

static void *waits_in_a_copy(void *argument) {
    struct epoll_event event;
    closed_tid = gettid();
    closed_result = epoll_wait(closed_copy, &event, 1, -1) < 0 ? errno : 0;
    return argument;
}

/* A thread waits in a set by a descriptor that becomes another set's, while the set lives on by its other descriptor. */
static void closed_copy_case(void) {
    struct port b = port_open("lan0:b");
    int set = epoll_create1(0), pipes[2];
    add(set, b.fd, EPOLLIN, 7);
    CHECK((closed_copy = dup(set)) >= 0 && pipe(pipes) == 0 && write(pipes[1], "x", 1) == 1);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, waits_in_a_copy, NULL) == 0);
    while (closed_tid == 0)
        sched_yield();
    sleeps(&closed_tid);
    CHECK(close(closed_copy) == 0 && epoll_create1(0) == closed_copy);
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = 99};
    CHECK(epoll_ctl(closed_copy, EPOLL_CTL_ADD, pipes[0], &event) == 0);
    /* Wakes the thread up. */
    event = (struct epoll_event){.events = EPOLLIN, .data.u64 = 8};
    CHECK(epoll_ctl(set, EPOLL_CTL_MOD, b.fd, &event) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && closed_result == EBADF);
    CHECK(epoll_wait(closed_copy, &event, 1, 0) == 1 && event.data.u64 == 99);
}

/* The inner set was in the outer one before it had a netmap descriptor. */
static void later_case(void) {
    struct port a = port_open("lan0:a"), b = port_open("lan0:b");
    int inner = epoll_create1(0), outer = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 8};
    add(outer, inner, EPOLLIN, 7);
    add(inner, b.fd, EPOLLIN, 9);
    CHECK(epoll_ctl(outer, EPOLL_CTL_MOD, inner, &event) == 0);
    send_frames(&a, 1, 0, 1);
    has_frame(&b);
    CHECK(epoll_wait(outer, &event, 1, PATIENCE_MS) == 1 && event.data.u64 == 8);
    CHECK(epoll_ctl(outer, EPOLL_CTL_DEL, inner, NULL) == 0 && epoll_wait(outer, &event, 1, 20) == 0);
    CHECK(epoll_ctl(outer, EPOLL_CTL_DEL, inner, NULL) == -1 && errno == ENOENT);

    int other = epoll_create1(0), plain = epoll_create1(0);
    add(plain, other, EPOLLIN, 7);
    add(other, b.fd, EPOLLIN, 9);
    CHECK(epoll_ctl(plain, EPOLL_CTL_DEL, other, NULL) == 0);
    CHECK(epoll_ctl(plain, EPOLL_CTL_DEL, other, NULL) == -1 && errno == ENOENT);

    /* A set for which there is no room is not added by half. */
    int copies[64];
    for (int i = 0; i < 64; i++) {
        CHECK((copies[i] = dup(b.fd)) >= 0);
        add(plain, copies[i], EPOLLPRI, i);
    }
    event = (struct epoll_event){.events = EPOLLIN, .data.u64 = 7};
    CHECK(epoll_ctl(plain, EPOLL_CTL_ADD, inner, &event) == -1 && errno == ENOSPC);
    CHECK(epoll_ctl(plain, EPOLL_CTL_DEL, copies[0], NULL) == 0);
    CHECK(epoll_ctl(plain, EPOLL_CTL_ADD, inner, &event) == 0);
    CHECK(epoll_wait(plain, &event, 1, PATIENCE_MS) == 1 && event.data.u64 == 7);
}

static int old_set, old_error;
static volatile pid_t old_tid;

static void *waits_in_old_set(void *argument) {
    struct epoll_event event;
    old_tid = gettid();
    old_error = epoll_wait(old_set, &event, 1, -1) < 0 ? errno : 0;
    __atomic_store_n((int *)argument, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Sets that take the number and the place of one that was closed: behind the library's back, or while a thread sleeps in it. */
static void reopened_case(void) {
    struct port a = port_open("lan0:a"), b = port_open("lan0:b");
    struct epoll_event event;
    int set = epoll_create1(0);
    add(set, b.fd, EPOLLIN, 7);
    CHECK(syscall(SYS_close, set) == 0 && epoll_create1(0) == set);
    send_frames(&a, 1, 0, 1);
    has_frame(&b);
    CHECK(epoll_wait(set, &event, 1, 20) == 0);
    add(set, b.fd, EPOLLIN, 8);
    CHECK(epoll_wait(set, &event, 1, PATIENCE_MS) == 1 && event.data.u64 == 8);
    CHECK(syscall(SYS_close, set) == 0 && epoll_create(1) == set);
    CHECK(epoll_wait(set, &event, 1, 20) == 0 && close(set) == 0);
    expect(&b, 0, 1);

    int woken = 0;
    pthread_t thread;
    old_set = epoll_create1(0);
    add(old_set, b.fd, EPOLLIN, 9);
    CHECK(pthread_create(&thread, NULL, waits_in_old_set, &woken) == 0);
    while (old_tid == 0)
        sched_yield();
    sleeps(&old_tid);
    CHECK(close(old_set) == 0);
    set = epoll_create1(0);
    CHECK(set == old_set);
    add(set, b.fd, EPOLLIN | EPOLLONESHOT, 10);
    send_frames(&a, 1, 1, 1);
    /* The thread takes no event of the new set. */
    CHECK(epoll_wait(set, &event, 1, PATIENCE_MS) == 1 && event.data.u64 == 10);
    double end = now() + PATIENCE;
    while (!__atomic_load_n(&woken, __ATOMIC_ACQUIRE))
        CHECK(now() < end && usleep(1000) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && old_error == EBADF);
}

static const struct test_case cases[] = {
    {"lap", lap_case}, {"bad-ring", bad_ring_case}, {"killed-busy", killed_busy_case}, {"forked", forked_case},
    {"later", later_case}, {"adds", adds_case}, {"executed", executed_case}, {"closed-copy", closed_copy_case}, {"reopened", reopened_case},
};

int main(int argc, char **argv) {
    return run_case(cases, sizeof(cases) / sizeof(cases[0]), argc, argv);
}
