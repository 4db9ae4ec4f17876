/* One case for each way of using the interface: `cases NAME`. Two ports of one process, unless the case says otherwise. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/wait.h>

#include "port.h"

enum { FRAMES = 20000, BATCH = 200 };

/* Sends in batches that the receiver has taken before the next one: nothing may be lost. */
static void ioctl_case(void) {
    struct port a = port_open("lan0:a"), b = port_open("lan0:b");
    for (uint32_t at = 0; at < FRAMES; at += BATCH) {
        send_frames(&a, 1, at, BATCH);
        expect(&b, at, BATCH);
    }
}

static void child_sends(const char *name, uint32_t count, useconds_t pause) {
    if (fork() != 0)
        return;
    alarm(2 * PATIENCE);
    struct port a = port_open(name);
    usleep(50000);
    for (uint32_t at = 0; at < count; at++) {
        send_frames(&a, 1, at, 1);
        usleep(pause);
    }
    drain(&a, 0);
    _exit(0);
}

static void reap(int count) {
    for (int status; count > 0; count--) {
        CHECK(wait(&status) > 0);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static void poll_case(void) {
    struct port b = port_open("lan0:b");
    struct pollfd none = {.fd = b.fd, .events = POLLIN};
    double before = now();
    CHECK(poll(&none, 1, 50) == 0 && now() - before > 0.045);
    CHECK(poll(&none, 1, 0) == 0);
    struct pollfd out = {.fd = b.fd, .events = POLLOUT};
    CHECK(poll(&out, 1, -1) == 1 && out.revents == POLLOUT);
    child_sends("lan0:a", 300, 1000);
    for (uint32_t got = 0; got < 300;) {
        struct pollfd fd = {.fd = b.fd, .events = POLLIN};
        CHECK(poll(&fd, 1, PATIENCE_MS) == 1 && fd.revents == POLLIN);
        uint32_t more = take(b.rx[0], got);
        CHECK(more > 0);
        got += more;
    }
    reap(1);
}

static void ppoll_case(void) {
    struct port b = port_open("lan0:b");
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    child_sends("lan0:a", 100, 1000);
    CHECK(write(pipes[1], "x", 1) == 1);
    struct timespec limit = {.tv_sec = PATIENCE};
    for (uint32_t got = 0, heard = 0; got < 100 || !heard;) {
        struct pollfd fds[] = {{.fd = b.fd, .events = POLLIN}, {.fd = heard ? -1 : pipes[0], .events = POLLIN}, {.fd = -1}};
        CHECK(ppoll(fds, 3, &limit, NULL) >= 1);
        if (fds[1].revents) {
            char byte;
            CHECK(read(pipes[0], &byte, 1) == 1);
            heard = 1;
        }
        if (fds[0].revents)
            got += take(b.rx[0], got);
    }
    reap(1);
}

static void select_case(void) {
    struct port b = port_open("lan0:b");
    fd_set set;
    FD_ZERO(&set);
    FD_SET(b.fd, &set);
    struct timeval limit = {.tv_usec = 30000};
    CHECK(select(b.fd + 1, &set, NULL, NULL, &limit) == 0 && !FD_ISSET(b.fd, &set));
    CHECK(limit.tv_sec == 0 && limit.tv_usec == 0);
    child_sends("lan0:a", 100, 1000);
    for (uint32_t got = 0; got < 100;) {
        FD_ZERO(&set);
        FD_SET(b.fd, &set);
        fd_set out = set;
        FD_CLR(b.fd, &out);
        struct timespec wait_for = {.tv_sec = PATIENCE};
        int found = got % 2 ? select(b.fd + 1, &set, &out, NULL, NULL) : pselect(b.fd + 1, &set, &out, NULL, &wait_for, NULL);
        CHECK(found == 1 && FD_ISSET(b.fd, &set));
        got += take(b.rx[0], got);
    }
    FD_ZERO(&set);
    FD_SET(b.fd, &set);
    CHECK(select(b.fd + 1, NULL, &set, NULL, NULL) == 1 && FD_ISSET(b.fd, &set));
    reap(1);
}

static void epoll_with(uint32_t flags) {
    struct port b = port_open("lan0:b");
    int set = epoll_create1(0), pipes[2];
    CHECK(set >= 0 && pipe(pipes) == 0);
    struct epoll_event netmap = {.events = EPOLLIN | flags, .data.u64 = 7};
    struct epoll_event other = {.events = EPOLLIN | flags, .data.u64 = 8};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, b.fd, &netmap) == 0);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, b.fd, &netmap) == -1 && errno == EEXIST);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, pipes[0], &other) == 0);
    struct epoll_event events[4];
    double before = now();
    CHECK(epoll_wait(set, events, 4, 30) == 0 && now() - before > 0.025);
    child_sends("lan0:a", 100, 1000);
    CHECK(write(pipes[1], "x", 1) == 1);
    for (uint32_t got = 0, heard = 0; got < 100 || !heard;) {
        int found = epoll_pwait(set, events, 4, 10000, NULL);
        CHECK(found >= 1);
        for (int i = 0; i < found; i++) {
            CHECK(events[i].events == EPOLLIN);
            if (events[i].data.u64 == 7) {
                got += take(b.rx[0], got);
            } else {
                char byte;
                CHECK(events[i].data.u64 == 8 && read(pipes[0], &byte, 1) == 1);
                heard = 1;
            }
        }
    }
    reap(1);
    if (flags & EPOLLET) {
        /* What was reported and not taken is not reported again; a further frame is. */
        struct port a = port_open("lan0:c");
        send_frames(&a, 1, 0, 1);
        CHECK(epoll_wait(set, events, 4, PATIENCE_MS) == 1);
        CHECK(epoll_wait(set, events, 4, 50) == 0);
        send_frames(&a, 1, 1, 1);
        CHECK(epoll_wait(set, events, 4, PATIENCE_MS) == 1);
        CHECK(take(b.rx[0], 0) == 2);
    }
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, b.fd, NULL) == 0);
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, b.fd, NULL) == -1 && errno == ENOENT);
}

static void epoll_level_case(void) {
    epoll_with(0);
}

static void epoll_edge_case(void) {
    epoll_with(EPOLLET);
}

static void *sends_on_ring(void *argument) {
    uint16_t ring = (uint16_t)(uintptr_t)argument;
    struct port port = port_make("lan0:a", (struct nm_register){.mode = MODE_ONE, .ring_id = ring});
    CHECK(port.nif->ring_ofs[ring] != 0 && port.nif->ring_ofs[1 - ring] == 0);
    for (uint32_t at = 0; at < 2000;) {
        struct pollfd fd = {.fd = port.fd, .events = POLLOUT};
        CHECK(poll(&fd, 1, PATIENCE_MS) == 1);
        at += put(port.tx[ring], ring + 1, at, 1);
    }
    drain(&port, ring);
    return NULL;
}

/* Two threads have a ring each by descriptors of their own. */
static void threads_case(void) {
    struct port b = port_make("lan0:b", (struct nm_register){.rx_slots = 8192});
    struct port all = port_make("lan0:a", (struct nm_register){.tx_rings = 2, .rx_rings = 2});
    CHECK(all.reg.tx_rings == 2 && all.reg.mem_id == b.reg.mem_id);
    pthread_t threads[2];
    for (uintptr_t i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, sends_on_ring, (void *)i) == 0);
    uint32_t got[3] = {0};
    while (got[1] + got[2] < 4000) {
        struct pollfd fd = {.fd = b.fd, .events = POLLIN};
        CHECK(poll(&fd, 1, PATIENCE_MS) == 1);
        struct nm_ring *ring = b.rx[0];
        for (; ring->head != ring->tail; ring->head = ring->cur = ring_next(ring, ring->head)) {
            const char *frame = ring_buf(ring, ring->slots[ring->head].buf_idx);
            CHECK(frame[11] == 1 || frame[11] == 2);
            CHECK(frame_sequence(frame) == got[(int)frame[11]]++);
        }
    }
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

/* A child goes on with the rings of its parent, who only keeps the descriptor open, and then the parent goes on. */
static void fork_case(void) {
    struct port a = port_open("lan0:a"), b = port_open("lan0:b");
    send_frames(&a, 1, 0, 10);
    expect(&b, 0, 10);
    if (fork() == 0) {
        send_frames(&a, 1, 10, 10);
        _exit(0);
    }
    reap(1);
    expect(&b, 10, 10);
    send_frames(&a, 1, 20, 10);
    expect(&b, 20, 10);
}

/* A process gets a registered descriptor by a socket. The first thing it does with it is `poll`. */
static void passed_case(void) {
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    if (fork() == 0) {
        close(pair[0]);
        struct port a = {.fd = passed(pair[1])};
        CHECK(read(pair[1], &a.reg, sizeof(a.reg)) == sizeof(a.reg));
        struct pollfd fd = {.fd = a.fd, .events = POLLOUT};
        CHECK(poll(&fd, 1, PATIENCE_MS) == 1 && fd.revents == POLLOUT);
        port_map(&a);
        send_frames(&a, 1, 0, 100);
        CHECK(read(pair[1], &fd, 1) == 1);
        _exit(0);
    }
    struct port b = port_open("lan0:b"), a = port_open("lan0:a");
    pass(pair[0], a.fd);
    CHECK(write(pair[0], &a.reg, sizeof(a.reg)) == sizeof(a.reg));
    port_close(&a);
    expect(&b, 0, 100);
    CHECK(write(pair[0], "x", 1) == 1);
    reap(1);
}

/* A program inherits a registered descriptor: `cases inherited FD BYTES OFFSET`. */
static void exec_case(void) {
    struct port b = port_open("lan0:b");
    if (fork() == 0) {
        struct port a = port_open("lan0:a");
        char words[3][32];
        snprintf(words[0], 32, "%d", a.fd);
        snprintf(words[1], 32, "%llu", (unsigned long long)a.reg.memsize);
        snprintf(words[2], 32, "%llu", (unsigned long long)a.reg.offset);
        execl("/proc/self/exe", "cases", "inherited", words[0], words[1], words[2], NULL);
        _exit(1);
    }
    expect(&b, 0, 50);
    reap(1);
}

static void inherited(char **words) {
    struct port a = {.fd = atoi(words[0]), .reg = {.memsize = strtoull(words[1], NULL, 10), .offset = strtoull(words[2], NULL, 10), .tx_rings = 1, .rx_rings = 1}};
    struct pollfd fd = {.fd = a.fd, .events = POLLOUT};
    CHECK(poll(&fd, 1, PATIENCE_MS) == 1 && fd.revents == POLLOUT);
    port_map(&a);
    send_frames(&a, 1, 0, 50);
    drain(&a, 0);
}

/* Duplicates share the file; the last close ends the registration. A closed number is not netmap's any more. */
static void dup_case(void) {
    struct port a = port_open("lan0:a"), b = port_open("lan0:b");
    int copies[] = {dup(a.fd), dup2(a.fd, 100), dup3(a.fd, 101, O_CLOEXEC), fcntl(a.fd, F_DUPFD, 200), fcntl(a.fd, F_DUPFD_CLOEXEC, 201)};
    CHECK(copies[1] == 100 && copies[2] == 101 && copies[3] >= 200 && copies[4] >= 201);
    CHECK(close(a.fd) == 0);
    CHECK(ioctl(a.fd, NM_TXSYNC, NULL) == -1 && errno == EBADF);
    for (unsigned i = 0; i < 5; i++) {
        a.fd = copies[i];
        send_frames(&a, 1, i, 1);
        expect(&b, i, 1);
        if (i < 4)
            CHECK(close(copies[i]) == 0);
    }
    int other = open("/dev/null", O_RDWR);
    CHECK(dup2(other, a.fd) == a.fd && ioctl(a.fd, NM_TXSYNC, NULL) == -1 && errno == ENOTTY);
    /* The library's own descriptors survive a program that closes everything it does not know. */
    for (int fd = 3; fd < 2000; fd++)
        if (fd != b.fd)
            close(fd);
    struct port again = port_open("lan0:a");
    closefrom(again.fd > b.fd ? again.fd + 1 : b.fd + 1);
    send_frames(&again, 1, 5, 1);
    expect(&b, 5, 1);
}

static void legacy_case(void) {
    struct nm_legacy request = {.version = 14, .tx_slots = 256, .rx_slots = 256};
    strcpy(request.name, "vale0:a");
    int fd = open("/dev/netmap", O_RDWR);
    CHECK(ioctl(fd, NM_INFO, &request) == 0 && request.tx_rings == 1);
    CHECK(ioctl(fd, NM_REGIF, &request) == 0 && request.tx_slots == 256 && request.memsize > 0);
    struct port a = {.fd = fd, .reg = {.memsize = request.memsize, .offset = request.offset, .tx_rings = 1, .rx_rings = 1}};
    port_map(&a);
    struct port b = port_open("vale0:b");
    send_frames(&a, 1, 0, 100);
    expect(&b, 0, 100);
    CHECK(ioctl(fd, NM_REGIF, &request) == -1 && errno == EBUSY);
    request.version = 13;
    CHECK(ioctl(fd, NM_REGIF, &request) == -1 && errno == EINVAL);
}

/* Poll and sync rules of the flags. */
static void flags_case(void) {
    struct port b = port_make("lan0:b", (struct nm_register){.flags = REG_RX_ONLY});
    CHECK(b.nif->ring_ofs[0] == 0);
    struct port a = port_make("lan0:a", (struct nm_register){.flags = REG_NO_TX_POLL | REG_TX_ONLY});
    put(a.tx[0], 1, 0, 3);
    struct pollfd fd = {.fd = a.fd, .events = POLLIN};
    CHECK(poll(&fd, 1, 10) == 0);
    CHECK(ioctl(b.fd, NM_RXSYNC, NULL) == 0 && ring_space(b.rx[0]) == 0);
    fd.events = POLLOUT;
    CHECK(poll(&fd, 1, PATIENCE_MS) == 1);
    expect(&b, 0, 3);
    struct port c = port_open("lan0:c");
    put(c.tx[0], 1, 3, 3);
    fd = (struct pollfd){.fd = c.fd, .events = POLLIN};
    poll(&fd, 1, 0);
    expect(&b, 3, 3);
    /* They are those of the registration: a descriptor that was passed has them, too. */
    struct port d = port_make("lan0:d", (struct nm_register){.flags = REG_DO_RX_POLL});
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pass(pair[0], a.fd);
    fd = (struct pollfd){.fd = passed(pair[1]), .events = POLLIN};
    put(a.tx[0], 1, 6, 3);
    CHECK(poll(&fd, 1, 10) == 0);
    CHECK(ioctl(b.fd, NM_RXSYNC, NULL) == 0 && ring_space(b.rx[0]) == 0);
    fd.events = POLLOUT;
    CHECK(poll(&fd, 1, PATIENCE_MS) == 1);
    expect(&b, 6, 3);
    pass(pair[0], d.fd);
    fd = (struct pollfd){.fd = passed(pair[1]), .events = POLLOUT};
    for (double end = now() + PATIENCE; ring_space(d.rx[0]) != 3;)
        CHECK(poll(&fd, 1, 0) == 1 && now() < end);
}

/* The second program gets EBUSY; when the first is killed, the port is free. */
static void busy_case(void) {
    int pair[2];
    char byte;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t child = fork();
    if (child == 0) {
        struct port a = port_open("lan0:a");
        send_frames(&a, 1, 0, 1);
        CHECK(write(pair[1], "x", 1) == 1);
        pause();
    }
    CHECK(read(pair[0], &byte, 1) == 1);
    int fd = open("/dev/netmap", O_RDWR);
    struct nm_register reg = {.mode = MODE_ALL};
    CHECK(control(fd, "lan0:a", REQ_REGISTER, &reg, NULL) == EBUSY);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    double end = now() + PATIENCE;
    int error;
    do {
        reg = (struct nm_register){.mode = MODE_ALL};
        error = control(fd, "lan0:a", REQ_REGISTER, &reg, NULL);
    } while (error == EBUSY && now() < end);
    CHECK(error == 0);
    struct nm_register again = {.mode = MODE_ALL};
    CHECK(control(fd, "lan0:c", REQ_REGISTER, &again, NULL) == EBUSY);
    int second = open("/dev/netmap", O_RDWR);
    again = (struct nm_register){.mode = MODE_ALL, .flags = REG_EXCLUSIVE};
    CHECK(control(second, "lan0:a", REQ_REGISTER, &again, NULL) == EBUSY);
}

/* Every request that cannot be had, and every mistake, has its errno. */
static void refused_case(void) {
    int fd = open("/dev/netmap", O_RDWR);
    CHECK(ioctl(fd, NM_TXSYNC, NULL) == -1 && errno == ENXIO);
    CHECK(ioctl(fd, NM_RXSYNC, NULL) == -1 && errno == ENXIO);
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EINVAL);
    struct pollfd unbound = {.fd = fd, .events = POLLIN};
    CHECK(poll(&unbound, 1, PATIENCE_MS) == 1 && unbound.revents == POLLERR);
    CHECK(ioctl(fd, _IO('i', 199), NULL) == -1 && errno == EOPNOTSUPP);
    CHECK(ioctl(fd, NM_CONTROL, NULL) == -1 && errno == EFAULT);
    CHECK(ioctl(fd, NM_CONTROL, (void *)8) == -1 && errno == EFAULT);

    CHECK(refused("lan0:a", (struct nm_register){.mode = MODE_HOST}) == EINVAL);
    CHECK(refused("lan0:a", (struct nm_register){.mode = MODE_ALL_AND_HOST}) == EINVAL);
    CHECK(refused("lan0:a", (struct nm_register){.mode = MODE_ONE_HOST}) == EINVAL);
    CHECK(refused("lan0:a", (struct nm_register){.mode = 0}) == EINVAL);
    CHECK(refused("lan0:a", (struct nm_register){.mode = 99}) == EINVAL);
    CHECK(refused("lan0:a", (struct nm_register){.mode = MODE_PIPE_MASTER}) == EINVAL);
    CHECK(refused("lan0:a", (struct nm_register){.mode = MODE_NULL}) == EOPNOTSUPP);
    CHECK(refused("lan0:a", (struct nm_register){.mode = MODE_ONE, .ring_id = 1}) == EINVAL);
    CHECK(refused("lan0:a", (struct nm_register){.mode = MODE_ALL, .flags = REG_MONITOR_TX}) == EPERM);
    CHECK(refused("lan0:a", (struct nm_register){.mode = MODE_ALL, .mem_id = 999}) == EINVAL);
    const char *ends[] = {"lan0:a{", "lan0:a}", "{1", "lan0:{1", "lan0:a{1}2", "lan0:a{/", "lan0:a}x y"};
    for (unsigned i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        CHECK(refused(ends[i], (struct nm_register){.mode = MODE_ALL}) == EINVAL);
    CHECK(refused("lan0:a{1", (struct nm_register){.mode = MODE_ALL_AND_HOST}) == EINVAL);
    CHECK(refused("lan0:a{1", (struct nm_register){.mode = MODE_ONE, .ring_id = 1}) == EINVAL);
    const char *names[] = {"", "a", "lan0", "lan0:", ":a", "lan0:a/b", "lan0:a\n", "lan0:a:b", "../x:a",
                           "0123456789012345678901234567890123456789012345678901234567890:abcdef"};
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        CHECK(refused(names[i], (struct nm_register){.mode = MODE_ALL}) == ENXIO);

    struct nm_register reg = {.mode = MODE_ALL};
    struct nm_header header = {.version = 13, .kind = REQ_REGISTER, .body = (uintptr_t)&reg};
    strcpy(header.name, "lan0:a");
    CHECK(ioctl(fd, NM_CONTROL, &header) == -1 && errno == EINVAL && header.version == 14);
    header.reserved = 1;
    CHECK(ioctl(fd, NM_CONTROL, &header) == -1 && errno == EINVAL);
    header.reserved = 0, header.body = 0;
    CHECK(ioctl(fd, NM_CONTROL, &header) == -1 && errno == EINVAL);
    header.body = 8;
    CHECK(ioctl(fd, NM_CONTROL, &header) == -1 && errno == EFAULT);
    CHECK(asked("lan0:a", 0, NULL, NULL) == EINVAL && asked("lan0:a", 77, NULL, NULL) == EINVAL);
    char body[64] = {0};
    CHECK(asked("lan0:a", 77, body, NULL) == EINVAL && asked("lan0:a", REQ_CSB_ENABLE, body, NULL) == EINVAL);
    CHECK(asked("lan0:a", REQ_CSB_ENABLE, NULL, NULL) == EINVAL);
    CHECK(asked("lan0:a", REQ_KLOOP_START, body, NULL) == EINVAL && asked("lan0:a", REQ_KLOOP_STOP, NULL, NULL) == EINVAL);
    CHECK(asked("lan0:a", REQ_POLLING_ON, body, NULL) == ENXIO && asked("lan0:a", REQ_POLLING_OFF, body, NULL) == ENXIO);
    CHECK(asked("lan0:a", REQ_HDR_GET, body, NULL) == ENXIO && asked("none:x", REQ_LIST, body, NULL) == ENOENT);
    struct nm_port_header length = {.len = 11};
    CHECK(asked("lan0:a", REQ_HDR_SET, &length, NULL) == EINVAL);

    /* Options: none is built in. */
    struct { struct nm_option head; uint64_t body[9]; } one = {.head = {.kind = 1}}, two = {.head = {.kind = 3}}, same = {.head = {.kind = 3}};
    CHECK(asked("lan0:a", REQ_REGISTER, &reg, &one) == EOPNOTSUPP && one.head.status == EOPNOTSUPP);
    one.head.next = (uintptr_t)&two;
    two.head.kind = 1234;
    CHECK(asked("lan0:a", REQ_REGISTER, &reg, &one) == EOPNOTSUPP && two.head.status == EOPNOTSUPP);
    two.head.kind = 3, two.head.next = (uintptr_t)&same;
    CHECK(asked("lan0:a", REQ_REGISTER, &reg, &one) == EINVAL && two.head.status == EINVAL && same.head.status == EINVAL);
    two.head.next = 0, two.head.kind = 0;
    CHECK(asked("lan0:a", REQ_REGISTER, &reg, &one) == EINVAL && two.head.status == EINVAL);
    two.head.kind = 99, two.head.next = (uintptr_t)&two;
    CHECK(asked("lan0:a", REQ_REGISTER, &reg, &one) == EMSGSIZE);
    two.head.next = 16;
    CHECK(asked("lan0:a", REQ_REGISTER, &reg, &one) == EFAULT);
    one.head = (struct nm_option){.kind = 2, .size = 1 << 20};
    CHECK(asked("lan0:a", REQ_REGISTER, &reg, &one) == EMSGSIZE);

    /* A long list: the kernel's buffer for options is full at the last one. */
    struct nm_option many[100] = {{0}};
    for (int i = 0; i < 99; i++)
        many[i] = (struct nm_option){.kind = 6, .next = (uintptr_t)&many[i + 1]};
    many[99] = (struct nm_option){.kind = 2, .size = 1000};
    CHECK(asked("lan0:a", REQ_REGISTER, &reg, many) == EMSGSIZE);
    many[99].size = 24;
    CHECK(asked("lan0:a", REQ_REGISTER, &reg, many) == EOPNOTSUPP && many[99].status == EOPNOTSUPP);

    /* None of it has made a port, and the descriptor is good for a registration. */
    CHECK(control(fd, "lan0:a", REQ_REGISTER, &reg, NULL) == 0);
    CHECK(mmap(NULL, reg.memsize, PROT_READ, MAP_SHARED, fd, 4096) == MAP_FAILED && errno == EINVAL);
    int other = open("/dev/null", O_RDWR);
    CHECK(ioctl(other, NM_TXSYNC, NULL) == -1 && errno == ENOTTY);
    CHECK(close(fd) == 0 && ioctl(fd, NM_TXSYNC, NULL) == -1 && errno == EBADF);
}

static void info_case(void) {
    int fd = open("/dev/netmap", O_RDWR);
    struct nm_port_info info = {0};
    CHECK(control(fd, "lan0:a", REQ_PORT_INFO, &info, NULL) == 0 && info.tx_rings == 1 && info.tx_slots == 1024);
    struct port a = port_open("lan0:a"), b = port_open("lan0:b");
    CHECK(control(fd, "lan0:a", REQ_PORT_INFO, &info, NULL) == 0 && info.mem_id == a.reg.mem_id && info.memsize == a.reg.memsize);
    struct { uint64_t memsize; uint16_t mem_id, pad[3]; uint64_t rest[6]; } pools = {0};
    CHECK(control(fd, "lan0:a", REQ_POOLS_INFO, &pools, NULL) == 0 && pools.memsize == a.reg.memsize);
    struct nm_list list = {0};
    CHECK(control(fd, "lan0:b", REQ_LIST, &list, NULL) == 0);
    struct nm_header header = {.version = 14, .kind = REQ_LIST, .body = (uintptr_t)&list};
    int found = 0;
    for (list = (struct nm_list){0}; ioctl(fd, NM_CONTROL, &header) == 0; list.port++) {
        found |= !strcmp(header.name, "lan0:a") ? 1 : !strcmp(header.name, "lan0:b") ? 2 : 0;
        memset(header.name, 0, sizeof(header.name));
    }
    CHECK(errno == ENOENT && found == 3);
    port_close(&b);
}

/* Says when it waits; the daemon is killed then. */
static void killed_case(void) {
    struct port a = port_open("lan0:a"), b = port_open("lan0:b");
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 1};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, b.fd, &event) == 0);
    puts("waiting");
    fflush(stdout);
    struct pollfd fd = {.fd = a.fd, .events = POLLIN};
    CHECK(poll(&fd, 1, PATIENCE_MS) == 1 && fd.revents == POLLERR);
    CHECK(epoll_wait(set, &event, 1, PATIENCE_MS) == 1 && (event.events & EPOLLERR));
    CHECK(ioctl(a.fd, NM_TXSYNC, NULL) == -1 && errno == ENXIO);
    CHECK(open("/dev/netmap", O_RDWR) == -1 && errno == ENXIO);
}

/* As above, in a loop that never sleeps. */
static void killed_busy_case(void) {
    struct port a = port_open("lan0:a");
    puts("waiting");
    fflush(stdout);
    double end = now() + PATIENCE;
    int result;
    do
        result = ioctl(a.fd, NM_RXSYNC, NULL);
    while (result == 0 && now() < end);
    CHECK(result == -1 && errno == ENXIO);
}

/* For strace: between two calls of getppid, a busy loop; between the next two, ten polls without a frame. */
static void counted_case(void) {
    struct port a = port_open("lan0:a"), b = port_open("lan0:b");
    send_frames(&a, 1, 0, 10);
    expect(&b, 0, 10);
    getppid();
    for (int i = 0; i < 100000; i++) {
        ioctl(a.fd, NM_TXSYNC, NULL);
        ioctl(b.fd, NM_RXSYNC, NULL);
    }
    getppid();
    for (int i = 0; i < 10; i++) {
        struct pollfd fd = {.fd = b.fd, .events = POLLIN};
        CHECK(poll(&fd, 1, 1) == 0);
    }
    getppid();
}

/* Leaves without closing anything. */
static void exit_case(void) {
    struct port a = port_open("lan0:a");
    send_frames(&a, 1, 0, 1);
    put(a.tx[0], 1, 1, 5);
}

/* What a program has synchronised arrives, however the program ends right after it. */
static void last_case(void) {
    struct port b = port_make("vale0:b", (struct nm_register){.rx_slots = 4096});
    for (uint32_t round = 0; round < 60; round++) {
        uint32_t frames = 1 + round * 17 % 1000;
        pid_t child = fork();
        if (child == 0) {
            struct port a = port_open("vale0:a");
            CHECK(put(a.tx[0], 1, 0, frames) == frames && ioctl(a.fd, NM_TXSYNC, NULL) == 0);
            if (round % 3 == 0)
                kill(getpid(), SIGKILL);
            if (round % 3 == 1)
                port_close(&a);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(round % 3 == 0 ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
        expect(&b, 0, frames);
    }
}

static void *waits(void *argument) {
    struct pollfd fd = {.fd = (int)(intptr_t)argument, .events = POLLIN};
    CHECK(poll(&fd, 1, PATIENCE_MS) == 1 && fd.revents == POLLIN);
    return NULL;
}

/* Three threads and a child wait for one descriptor: each frame wakes all of them. */
static void waiters_case(void) {
    struct port a = port_open("lan0:a"), b = port_open("lan0:b");
    for (uint32_t round = 0; round < 100; round++) {
        if (fork() == 0) {
            waits((void *)(intptr_t)b.fd);
            _exit(0);
        }
        pthread_t threads[3];
        for (int i = 0; i < 3; i++)
            CHECK(pthread_create(&threads[i], NULL, waits, (void *)(intptr_t)b.fd) == 0);
        usleep(round % 10 * 500);
        send_frames(&a, 1, round, 1);
        for (int i = 0; i < 3; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
        reap(1);
        expect(&b, round, 1);
    }
}

/* Monitors of what a port sends, receives, and both. They send nothing, and hear nothing of each other. */
static void monitors_case(void) {
    CHECK(refused("lan0:a", (struct nm_register){.mode = MODE_ALL, .flags = REG_MONITOR_TX}) == EINVAL);
    struct port a = port_open("lan0:a"), b = port_open("lan0:b");
    CHECK(refused("lan0:a", (struct nm_register){.mode = MODE_ONE, .flags = REG_MONITOR_TX}) == EOPNOTSUPP);
    struct port sent = port_make("lan0:a", (struct nm_register){.flags = REG_MONITOR_TX});
    struct port received = port_make("lan0:a", (struct nm_register){.flags = REG_MONITOR_RX});
    struct port both = port_make("lan0:a", (struct nm_register){.flags = REG_MONITOR_COPYLESS});
    send_frames(&a, 1, 0, 100);
    expect(&b, 0, 100);
    expect(&sent, 0, 100);
    expect(&both, 0, 100);
    send_frames(&b, 2, 100, 50);
    expect(&a, 100, 50);
    expect(&received, 100, 50);
    expect(&both, 100, 50);
    send_frames(&both, 3, 150, 10);
    drain(&both, 0);
    send_frames(&a, 1, 150, 1);
    expect(&b, 150, 1);
    expect(&sent, 150, 1);
    CHECK(ioctl(received.fd, NM_RXSYNC, NULL) == 0 && ring_space(received.rx[0]) == 0);
}

static const struct test_case cases[] = {
    {"ioctl", ioctl_case}, {"poll", poll_case}, {"ppoll", ppoll_case}, {"select", select_case},
    {"epoll-level", epoll_level_case}, {"epoll-edge", epoll_edge_case}, {"threads", threads_case},
    {"fork", fork_case}, {"passed", passed_case}, {"exec", exec_case}, {"dup", dup_case}, {"legacy", legacy_case},
    {"flags", flags_case}, {"busy", busy_case}, {"refused", refused_case}, {"info", info_case},
    {"killed", killed_case}, {"killed-busy", killed_busy_case}, {"counted", counted_case}, {"exit", exit_case},
    {"last", last_case}, {"waiters", waiters_case}, {"monitors", monitors_case},
};

int main(int argc, char **argv) {
    alarm(2 * PATIENCE);
    if (argc == 5 && !strcmp(argv[1], "inherited"))
        return inherited(argv + 2), 0;
    return run_case(cases, sizeof(cases) / sizeof(cases[0]), argc, argv);
}
