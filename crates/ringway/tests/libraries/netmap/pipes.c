/* Cases of pipes: `pipes NAME`. */
#define _GNU_SOURCE
#include <sys/wait.h>

#include "port.h"

enum { FRAMES = 20000 };

/* Sends all frames from one end and receives them at the other, which is slow: it returns a few slots at a time. */
static void through(struct port *from, struct port *to, uint32_t count) {
    struct nm_ring *rx = to->rx[0];
    double end = now() + PATIENCE;
    for (uint32_t sent = 0, got = 0; got < count;) {
        sent += put(from->tx[0], 1, sent, count - sent);
        CHECK(ioctl(from->fd, NM_TXSYNC, NULL) == 0 && ioctl(to->fd, NM_RXSYNC, NULL) == 0);
        for (int few = 0; few < 7 && rx->head != rx->tail; few++, got++) {
            CHECK(rx->slots[rx->head].len == 60 && frame_sequence(ring_buf(rx, rx->slots[rx->head].buf_idx)) == got);
            rx->head = rx->cur = ring_next(rx, rx->head);
        }
        if (now() > end)
            FAIL("%u of %u frames came", got, count);
    }
    CHECK(ioctl(to->fd, NM_RXSYNC, NULL) == 0);
}

/* Waits until `count` frames have come. */
static void arrived(struct port *port, uint32_t count) {
    double end = now() + PATIENCE;
    while (ring_space(port->rx[0]) != count) {
        CHECK(ioctl(port->fd, NM_RXSYNC, NULL) == 0);
        if (now() > end)
            FAIL("%u of %u frames came", ring_space(port->rx[0]), count);
    }
}

/* Both ends in one process: buffers are swapped, a full receiver leaves the sender without slots, and ends come and go. */
static void swap_case(void) {
    struct nm_register small = {.tx_slots = 64, .rx_slots = 32, .extra_bufs = 1};
    struct port m = port_make("lan0:p{1", small), s = port_open("lan0:p}1");
    CHECK(m.reg.tx_slots == 64 && m.reg.rx_slots == 32 && s.reg.tx_slots == 32 && s.reg.rx_slots == 64);
    CHECK(m.reg.mem_id == s.reg.mem_id);
    through(&m, &s, 1000);
    through(&s, &m, 1000);

    /* The number of the sender's buffer comes, and the receiver's goes back. */
    struct nm_ring *tx = m.tx[0], *rx = s.rx[0];
    uint32_t at = tx->head, buffer = tx->slots[at].buf_idx;
    CHECK(put(tx, 1, 0, 1) == 1);
    tx->slots[at].ptr = 0x1234567;
    CHECK(ioctl(m.fd, NM_TXSYNC, NULL) == 0);
    arrived(&s, 1);
    CHECK(rx->head == at && rx->slots[at].buf_idx == buffer && rx->slots[at].ptr == 0x1234567);
    uint32_t other = m.nif->bufs_head;
    m.nif->bufs_head = buffer;
    memset(ring_buf(tx, buffer), 0, 4);
    rx->slots[at].buf_idx = other;
    rx->slots[at].flags = SLOT_CHANGED;
    rx->head = rx->cur = ring_next(rx, at);
    CHECK(ioctl(s.fd, NM_RXSYNC, NULL) == 0);
    drain(&m, 0);
    CHECK(tx->slots[at].buf_idx == other);

    /* A full receiver stops the sender. */
    uint32_t sent = 0;
    double end = now() + 0.2;
    do {
        sent += put(tx, 1, sent, 1000);
        CHECK(ioctl(m.fd, NM_TXSYNC, NULL) == 0);
    } while (now() < end);
    CHECK(sent == 63);
    struct pollfd out = {.fd = m.fd, .events = POLLOUT};
    CHECK(poll(&out, 1, 30) == 0);
    arrived(&s, 63);
    rx->head = rx->cur = ring_next(rx, rx->head);
    CHECK(ioctl(s.fd, NM_RXSYNC, NULL) == 0);
    CHECK(poll(&out, 1, PATIENCE_MS) == 1 && ring_space(tx) == 1);

    /* What the slave has not returned comes to the next one; a frame of several slots comes whole. */
    port_close(&s);
    s = port_open("lan0:p}1");
    rx = s.rx[0];
    arrived(&s, 62);
    CHECK(take(rx, 1) == 62);
    CHECK(ioctl(s.fd, NM_RXSYNC, NULL) == 0);
    drain(&m, 0);
    for (int i = 0; i < 3; i++) {
        CHECK(put(tx, 1, i, 1) == 1);
        tx->slots[(tx->head + 63) % 64].flags = i < 2 ? SLOT_MORE : 0;
        CHECK(ioctl(m.fd, NM_TXSYNC, NULL) == 0);
    }
    arrived(&s, 3);
    CHECK(rx->slots[rx->head].flags == SLOT_MORE && take(rx, 0) == 3);
    CHECK(ioctl(s.fd, NM_RXSYNC, NULL) == 0);

    /* The sender goes: what it has published arrives. The next one begins where it ended. */
    put(tx, 1, 0, 20);
    CHECK(ioctl(m.fd, NM_TXSYNC, NULL) == 0);
    port_close(&m);
    arrived(&s, 20);
    CHECK(take(rx, 0) == 20);
    m = port_open("lan0:p{1");
    CHECK(m.reg.tx_slots == 64);
    through(&m, &s, 500);
    through(&s, &m, 500);
}

/* The ends in two processes of a family, both asleep in poll while there is nothing to do. */
static void fork_case(void) {
    enum { COUNT = 30000 };
    if (fork() == 0) {
        struct port s = port_open("lan0:p}x");
        for (uint32_t got = 0; got < COUNT;) {
            struct pollfd fd = {.fd = s.fd, .events = POLLIN};
            CHECK(poll(&fd, 1, PATIENCE_MS) == 1 && fd.revents == POLLIN);
            got += take(s.rx[0], got);
            if (got % 5 == 0)
                usleep(100);
        }
        CHECK(ioctl(s.fd, NM_RXSYNC, NULL) == 0);
        _exit(0);
    }
    struct port m = port_open("lan0:p{x");
    for (uint32_t sent = 0; sent < COUNT;) {
        struct pollfd fd = {.fd = m.fd, .events = POLLOUT};
        CHECK(poll(&fd, 1, PATIENCE_MS) == 1 && fd.revents == POLLOUT);
        sent += put(m.tx[0], 1, sent, COUNT - sent);
    }
    CHECK(ioctl(m.fd, NM_TXSYNC, NULL) == 0);
    int status;
    CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Half of a pipe between independent programs, by poll. */
static void sends_case(void) {
    struct port m = port_make("lan0:p{1", (struct nm_register){.tx_slots = 128});
    for (uint32_t sent = 0; sent < FRAMES;) {
        struct pollfd fd = {.fd = m.fd, .events = POLLOUT};
        CHECK(poll(&fd, 1, PATIENCE_MS) == 1 && fd.revents == POLLOUT);
        sent += put(m.tx[0], 1, sent, FRAMES - sent);
    }
    drain(&m, 0);
    struct pollfd fd = {.fd = m.fd, .events = POLLIN};
    CHECK(poll(&fd, 1, PATIENCE_MS) == 1 && take(m.rx[0], 0) == 1);
    CHECK(ioctl(m.fd, NM_RXSYNC, NULL) == 0);
}

static void receives_case(void) {
    struct port s = port_open("lan0:p}1");
    for (uint32_t got = 0; got < FRAMES;) {
        struct pollfd fd = {.fd = s.fd, .events = POLLIN};
        CHECK(poll(&fd, 1, PATIENCE_MS) == 1 && fd.revents == POLLIN);
        got += take(s.rx[0], got);
    }
    CHECK(ioctl(s.fd, NM_RXSYNC, NULL) == 0);
    CHECK(put(s.tx[0], 1, 0, 1) == 1 && ioctl(s.fd, NM_TXSYNC, NULL) == 0);
    /* The frame is the other program's once that has returned its slot. */
    double end = now() + PATIENCE;
    while (ring_space(s.tx[0]) != s.tx[0]->num_slots - 1 && now() < end) {
        struct pollfd gone = {.fd = s.fd, .events = POLLOUT};
        CHECK(poll(&gone, 1, 100) >= 0);
    }
}

/* Registrations of ends: rules as for ports, and the older modes. A pipe's port need not be open. */
static void ends_case(void) {
    struct port m = port_make("lan0:p{1", (struct nm_register){.flags = REG_EXCLUSIVE | REG_TX_ONLY, .tx_rings = 2});
    CHECK(m.reg.tx_rings == 2 && m.reg.rx_rings == 1);
    CHECK(refused("lan0:p{1", (struct nm_register){.mode = MODE_ALL}) == EBUSY);
    struct port two = port_open("lan0:p}1");
    CHECK(two.reg.tx_rings == 1 && two.reg.rx_rings == 2);
    CHECK(refused("lan0:p}1", (struct nm_register){.mode = MODE_ALL}) == 0);
    CHECK(refused("lan0:p}1", (struct nm_register){.mode = MODE_ALL, .flags = REG_EXCLUSIVE}) == EBUSY);
    CHECK(refused("lan0:p}1", (struct nm_register){.mode = MODE_ALL, .mem_id = 999}) == EINVAL);
    struct nm_port_info info = {0};
    CHECK(asked("lan0:p}new", REQ_PORT_INFO, &info, NULL) == 0 && info.tx_slots == 1024 && info.mem_id == m.reg.mem_id);
    struct nm_legacy legacy = {.version = 14, .ring_id = 7, .flags = MODE_PIPE_MASTER};
    strcpy(legacy.name, "lan0:old");
    int fd = open("/dev/netmap", O_RDWR);
    CHECK(ioctl(fd, NM_REGIF, &legacy) == 0 && legacy.ring_id == 7 && legacy.flags == MODE_PIPE_MASTER);
    struct port old = {.fd = fd, .reg = {.memsize = legacy.memsize, .offset = legacy.offset, .tx_rings = 1, .rx_rings = 1}};
    port_map(&old);
    struct port slave = port_open("lan0:old}7");
    through(&old, &slave, 100);
}

static const struct test_case cases[] = {
    {"swap", swap_case}, {"fork", fork_case}, {"sends", sends_case}, {"receives", receives_case}, {"ends", ends_case},
};

int main(int argc, char **argv) {
    return run_case(cases, sizeof(cases) / sizeof(cases[0]), argc, argv);
}
