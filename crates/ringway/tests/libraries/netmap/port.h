/* A netmap port of a test's program. Everything that goes wrong ends the program with a line that says where. */
#ifndef PORT_H
#define PORT_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "netmap_abi.h"

#define FAIL(...) (fprintf(stderr, "%s:%d: ", __FILE__, __LINE__), fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))
#define CHECK(fact) ((fact) ? (void)0 : FAIL("not true: %s (errno %d)", #fact, errno))

/* Longest wait for anything, in seconds and in milliseconds: what takes longer hangs. The machine may stand still for a while. */
#define PATIENCE 300
#define PATIENCE_MS (PATIENCE * 1000)

struct port {
    int fd;
    char *mem;
    struct nm_register reg;
    struct nm_if *nif;
    struct nm_ring *tx[16], *rx[16];
};

/* As ringway_testing::whole: `all` in the long form of the tests, otherwise `few`. */
static inline uint32_t whole(uint32_t few, uint32_t all) {
    return getenv("RINGWAY_WHOLE") ? all : few;
}

static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static inline void on(int number, void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler};
    CHECK(sigaction(number, &action, NULL) == 0);
}

/* The result of a control request: 0 or the errno. */
static inline int control(int fd, const char *name, int kind, void *body, void *options) {
    struct nm_header header = {.version = 14, .kind = kind, .body = (uintptr_t)body, .options = (uintptr_t)options};
    memcpy(header.name, name, strnlen(name, sizeof(header.name)));
    return ioctl(fd, NM_CONTROL, &header) < 0 ? errno : 0;
}

static inline void port_map(struct port *port) {
    port->mem = mmap(NULL, port->reg.memsize, PROT_READ | PROT_WRITE, MAP_SHARED, port->fd, 0);
    CHECK(port->mem != MAP_FAILED);
    port->nif = (struct nm_if *)(port->mem + port->reg.offset);
    CHECK(port->nif->tx_rings == port->reg.tx_rings && port->nif->rx_rings == port->reg.rx_rings);
    for (unsigned i = 0; i < port->nif->tx_rings; i++)
        port->tx[i] = (struct nm_ring *)((char *)port->nif + port->nif->ring_ofs[i]);
    unsigned first = port->nif->tx_rings + port->nif->host_tx_rings;
    for (unsigned i = 0; i < port->nif->rx_rings; i++)
        port->rx[i] = (struct nm_ring *)((char *)port->nif + port->nif->ring_ofs[first + i]);
}

static inline struct port port_make(const char *name, struct nm_register reg) {
    struct port port = {.fd = open("/dev/netmap", O_RDWR), .reg = reg};
    CHECK(port.fd >= 0);
    if (port.reg.mode == 0)
        port.reg.mode = MODE_ALL;
    int error = control(port.fd, name, REQ_REGISTER, &port.reg, NULL);
    if (error)
        FAIL("register %s: errno %d", name, error);
    port_map(&port);
    return port;
}

static inline struct port port_open(const char *name) {
    return port_make(name, (struct nm_register){0});
}

static inline void port_close(struct port *port) {
    munmap(port->mem, port->reg.memsize);
    CHECK(close(port->fd) == 0);
}

static inline uint32_t ring_next(struct nm_ring *ring, uint32_t at) {
    return at + 1 == ring->num_slots ? 0 : at + 1;
}

static inline uint32_t ring_space(struct nm_ring *ring) {
    return ring->tail >= ring->head ? ring->tail - ring->head : ring->tail + ring->num_slots - ring->head;
}

static inline char *ring_buf(struct nm_ring *ring, uint32_t index) {
    return (char *)ring + ring->buf_ofs + (size_t)index * ring->buf_size;
}

/* A broadcast frame of 60 bytes from the port with this number: its sequence number is at byte 20. */
static inline void frame_write(char *frame, int from, uint32_t sequence) {
    memset(frame, 0, 60);
    memset(frame, 0xff, 6);
    frame[6] = 2;
    frame[11] = from;
    frame[12] = (char)0x88;
    frame[13] = (char)0xb5;
    memcpy(frame + 20, &sequence, 4);
}

static inline uint32_t frame_sequence(const char *frame) {
    uint32_t sequence;
    memcpy(&sequence, frame + 20, 4);
    return sequence;
}

/* Moves `cur` and then `head`. If another thread synchronises the ring meanwhile, `head` is never ahead of `cur`: that is a fault. */
static inline void ring_move(struct nm_ring *ring, uint32_t to) {
    __atomic_store_n(&ring->cur, to, __ATOMIC_RELEASE);
    __atomic_store_n(&ring->head, to, __ATOMIC_RELEASE);
}

/* Puts up to `count` frames into the ring; returns how many. */
static inline uint32_t put(struct nm_ring *ring, int from, uint32_t sequence, uint32_t count) {
    uint32_t done = 0;
    while (done < count && ring->head != ring->tail) {
        struct nm_slot *slot = &ring->slots[ring->head];
        frame_write(ring_buf(ring, slot->buf_idx), from, sequence + done++);
        slot->len = 60;
        slot->flags = 0;
        ring_move(ring, ring_next(ring, ring->head));
    }
    return done;
}

/* Takes all received frames, whose numbers continue from `sequence`; returns how many. */
static inline uint32_t take(struct nm_ring *ring, uint32_t sequence) {
    uint32_t done = 0;
    while (ring->head != ring->tail) {
        struct nm_slot *slot = &ring->slots[ring->head];
        uint32_t got = frame_sequence(ring_buf(ring, slot->buf_idx));
        if (slot->len != 60 || got != sequence + done)
            FAIL("frame %u of %u bytes instead of %u", got, slot->len, sequence + done);
        done++;
        ring_move(ring, ring_next(ring, ring->head));
    }
    return done;
}

/* Receives exactly `count` frames from number `sequence` on, by busy RXSYNC. */
static inline void expect(struct port *port, uint32_t sequence, uint32_t count) {
    double end = now() + PATIENCE;
    for (uint32_t got = 0; got < count;) {
        CHECK(ioctl(port->fd, NM_RXSYNC, NULL) == 0);
        got += take(port->rx[0], sequence + got);
        if (now() > end)
            FAIL("%u of %u frames came", got, count);
    }
}

/* Sends exactly `count` frames. */
static inline void send_frames(struct port *port, int from, uint32_t sequence, uint32_t count) {
    double end = now() + PATIENCE;
    for (uint32_t done = 0; done < count;) {
        done += put(port->tx[0], from, sequence + done, count - done);
        CHECK(ioctl(port->fd, NM_TXSYNC, NULL) == 0);
        if (now() > end)
            FAIL("%u of %u frames were sent", done, count);
    }
}

/* Waits until the switch has taken all frames: those in the ring go with the port. */
static inline void drain(struct port *port, int ring) {
    double end = now() + PATIENCE;
    while (ring_space(port->tx[ring]) != port->tx[ring]->num_slots - 1) {
        CHECK(ioctl(port->fd, NM_TXSYNC, NULL) == 0);
        if (now() > end)
            FAIL("%u slots are free of %u", ring_space(port->tx[ring]), port->tx[ring]->num_slots);
    }
}

/* Waits until a thread of this process sleeps in a system call. */
static inline void sleeps(volatile pid_t *tid) {
    double end = now() + PATIENCE;
    for (char state = 0; state != 'S'; usleep(1000)) {
        char path[64], text[256] = "";
        snprintf(path, sizeof(path), "/proc/self/task/%d/stat", *tid);
        FILE *file = fopen(path, "r");
        if (file) {
            CHECK(fgets(text, sizeof(text), file) != NULL);
            fclose(file);
            state = strrchr(text, ')')[2];
        }
        if (now() > end)
            FAIL("the thread does not sleep");
    }
}

/* Passes a descriptor over a socket. */
static inline void pass(int over, int fd) {
    char byte = 'x';
    union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } space = {{0}};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space.bytes, .msg_controllen = sizeof(space.bytes)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(int));
    CHECK(sendmsg(over, &message, 0) == 1);
}

/* The descriptor that was passed. */
static inline int passed(int over) {
    char byte;
    union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } space;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space.bytes, .msg_controllen = sizeof(space.bytes)};
    CHECK(recvmsg(over, &message, 0) == 1);
    int fd;
    CHECK(CMSG_FIRSTHDR(&message) != NULL);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
    return fd;
}

/* The result of a registration, or of another control request, on a descriptor of its own. */
static inline int refused(const char *name, struct nm_register reg) {
    int fd = open("/dev/netmap", O_RDWR);
    int error = control(fd, name, REQ_REGISTER, &reg, NULL);
    close(fd);
    return error;
}

static inline int asked(const char *name, int kind, void *body, void *options) {
    int fd = open("/dev/netmap", O_RDWR);
    int error = control(fd, name, kind, body, options);
    close(fd);
    return error;
}

/* A case of a program: `PROGRAM NAME` runs it. */
struct test_case {
    const char *name;
    void (*run)(void);
};

static inline int run_case(const struct test_case *cases, size_t count, int argc, char **argv) {
    alarm(2 * PATIENCE);
    for (size_t i = 0; argc == 2 && i < count; i++)
        if (!strcmp(argv[1], cases[i].name))
            return cases[i].run(), 0;
    FAIL("usage: %s NAME", argv[0]);
}

#endif
