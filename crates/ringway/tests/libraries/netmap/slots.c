/* Cases of slots and buffers: `slots NAME`. */
#define _GNU_SOURCE
#include "port.h"

enum { FRAMES = 20000, BATCH = 200 };

/* A bridge of two ports by swapped buffers, between a sender and a receiver. */
static void swap_case(void) {
    struct port a = port_open("lan0:a"), left = port_open("lan0:left"), right = port_open("lan1:right"), b = port_open("lan1:b");
    CHECK(left.reg.mem_id == right.reg.mem_id && left.reg.mem_id != 0);
    for (uint32_t at = 0; at < FRAMES; at += BATCH) {
        send_frames(&a, 1, at, BATCH);
        double end = now() + PATIENCE;
        for (uint32_t moved = 0; moved < BATCH && now() < end;) {
            CHECK(ioctl(left.fd, NM_RXSYNC, NULL) == 0);
            struct nm_ring *from = left.rx[0], *to = right.tx[0];
            while (from->head != from->tail && to->head != to->tail) {
                struct nm_slot *in = &from->slots[from->head], *out = &to->slots[to->head], kept = *out;
                out->buf_idx = in->buf_idx;
                out->len = in->len;
                in->buf_idx = kept.buf_idx;
                in->flags = out->flags = SLOT_CHANGED;
                from->head = from->cur = ring_next(from, from->head);
                to->head = to->cur = ring_next(to, to->head);
                moved++;
            }
            CHECK(ioctl(right.fd, NM_TXSYNC, NULL) == 0);
        }
        expect(&b, at, BATCH);
    }
}

static void extra_case(void) {
    struct port a = port_make("lan0:a", (struct nm_register){.extra_bufs = 50}), b = port_open("lan0:b");
    CHECK(a.reg.extra_bufs == 50);
    uint32_t count = 0, index = a.nif->bufs_head;
    for (; index != 0; count++)
        index = *(uint32_t *)ring_buf(a.tx[0], index);
    CHECK(count == 50);
    /* The first extra buffer is sent; the slot's own takes its place in the list. */
    struct nm_slot *slot = &a.tx[0]->slots[a.tx[0]->head];
    uint32_t first = a.nif->bufs_head, next = *(uint32_t *)ring_buf(a.tx[0], first);
    a.nif->bufs_head = slot->buf_idx;
    *(uint32_t *)ring_buf(a.tx[0], slot->buf_idx) = next;
    frame_write(ring_buf(a.tx[0], first), 1, 0);
    *slot = (struct nm_slot){.buf_idx = first, .len = 60, .flags = SLOT_CHANGED};
    a.tx[0]->head = a.tx[0]->cur = ring_next(a.tx[0], a.tx[0]->head);
    CHECK(ioctl(a.fd, NM_TXSYNC, NULL) == 0);
    expect(&b, 0, 1);
}

/* A frame in the program's own memory, one that cannot be read, and one of three slots; time stamps. */
static void slots_case(void) {
    struct port a = port_open("lan0:a"), b = port_open("lan0:b");
    char *own = malloc(60);
    frame_write(own, 1, 0);
    struct nm_ring *tx = a.tx[0], *rx = b.rx[0];
    struct nm_slot *slot = &tx->slots[tx->head];
    long long before = time(NULL);
    slot->len = 60, slot->flags = SLOT_INDIRECT, slot->ptr = (uintptr_t)own;
    tx->head = tx->cur = ring_next(tx, tx->head);
    CHECK(ioctl(a.fd, NM_TXSYNC, NULL) == 0);
    expect(&b, 0, 1);
    CHECK(rx->seconds >= before - 1 && rx->seconds <= (long long)time(NULL) + 1 && rx->microseconds < 1000000);
    slot = &tx->slots[tx->head];
    slot->len = 60, slot->flags = SLOT_INDIRECT, slot->ptr = 8;
    tx->head = tx->cur = ring_next(tx, tx->head);
    CHECK(ioctl(a.fd, NM_TXSYNC, NULL) == 0);
    for (int i = 0; i < 3; i++) {
        slot = &tx->slots[tx->head];
        memset(ring_buf(tx, slot->buf_idx), i, 500);
        if (i == 0)
            frame_write(ring_buf(tx, slot->buf_idx), 1, 1);
        slot->len = 500, slot->flags = i < 2 ? SLOT_MORE : SLOT_REPORT;
        tx->head = tx->cur = ring_next(tx, tx->head);
    }
    CHECK(ioctl(a.fd, NM_TXSYNC, NULL) == 0);
    double end = now() + PATIENCE;
    while (rx->head == rx->tail && now() < end)
        CHECK(ioctl(b.fd, NM_RXSYNC, NULL) == 0);
    CHECK(rx->slots[rx->head].len == 1500 && frame_sequence(ring_buf(rx, rx->slots[rx->head].buf_idx)) == 1);
}

/* head and cur out of bounds: the ring is as it was, the ioctls succeed, and poll says POLLERR, as in netmap. */
static void bad_ring_case(void) {
    struct port a = port_open("lan0:a"), b = port_open("lan0:b");
    struct nm_ring *tx = a.tx[0], *rx = b.rx[0];
    send_frames(&a, 1, 0, 5);
    expect(&b, 0, 5);
    uint32_t head = tx->head;
    tx->head = tx->cur = tx->num_slots;
    CHECK(ioctl(a.fd, NM_TXSYNC, NULL) == 0 && tx->head == head && tx->cur == head);
    tx->head = head + 2, tx->cur = head + 1;
    CHECK(ioctl(a.fd, NM_TXSYNC, NULL) == 0 && tx->head == head && tx->cur == head);
    tx->head = 0xffffffff;
    struct pollfd fd = {.fd = a.fd, .events = POLLOUT};
    CHECK(poll(&fd, 1, PATIENCE_MS) == 1 && (fd.revents & POLLERR) && tx->head == head);
    CHECK(ioctl(b.fd, NM_RXSYNC, NULL) == 0);
    rx->head = rx->cur = ring_next(rx, rx->tail);
    CHECK(ioctl(b.fd, NM_RXSYNC, NULL) == 0 && rx->head == 5);
    rx->head = rx->cur = ring_next(rx, rx->tail);
    fd = (struct pollfd){.fd = b.fd, .events = POLLIN};
    CHECK(poll(&fd, 1, PATIENCE_MS) == 1 && (fd.revents & POLLERR) && rx->head == 5);
    tx->tail = 77777;
    rx->tail = 88888;
    send_frames(&a, 1, 5, 5);
    CHECK(tx->tail < tx->num_slots);
    expect(&b, 5, 5);
}

/* Frames without an address of a station pass, as in VALE, and nothing is learned from them. */
static void no_address_case(void) {
    struct port a = port_open("vale0:a"), b = port_open("vale0:b");
    static const char sources[3][6] = {{0}, {-1, -1, -1, -1, -1, -1}, {1, 0, 94, 0, 0, 1}};
    for (uint32_t i = 0; i < 9; i++) {
        struct nm_slot *slot = &a.tx[0]->slots[a.tx[0]->head];
        char *frame = ring_buf(a.tx[0], slot->buf_idx);
        frame_write(frame, 1, i);
        memcpy(frame, sources[i % 3], 6);
        memcpy(frame + 6, sources[i / 3], 6);
        slot->len = 60;
        a.tx[0]->head = a.tx[0]->cur = ring_next(a.tx[0], a.tx[0]->head);
    }
    CHECK(ioctl(a.fd, NM_TXSYNC, NULL) == 0);
    expect(&b, 0, 9);
}

/* Puts a frame from address 9 into the ring, with flags of its slot. */
static void put_flagged(struct port *port, uint32_t sequence, uint16_t flags) {
    struct nm_ring *ring = port->tx[0];
    struct nm_slot *slot = &ring->slots[ring->head];
    CHECK(put(ring, 9, sequence, 1) == 1);
    slot->flags = flags;
}

/* Sends a frame from port 2 to address 9. Returns how many of the two ports get it. */
static int hearers_of_9(struct port *from, struct port *at, struct port *other, uint32_t sequence) {
    struct nm_ring *ring = from->tx[0];
    char *frame = ring_buf(ring, ring->slots[ring->head].buf_idx);
    CHECK(put(ring, 2, sequence, 1) == 1);
    memset(frame, 0, 6);
    frame[0] = 2, frame[5] = 9;
    CHECK(ioctl(from->fd, NM_TXSYNC, NULL) == 0);
    expect(at, sequence, 1);
    /* A broadcast after it shows whether the other port got it. */
    send_frames(from, 2, sequence + 1, 1);
    expect(at, sequence + 1, 1);
    double end = now() + PATIENCE;
    for (int heard = 1;;) {
        CHECK(ioctl(other->fd, NM_RXSYNC, NULL) == 0 && now() < end);
        struct nm_ring *rx = other->rx[0];
        while (rx->head != rx->tail) {
            uint32_t got = frame_sequence(ring_buf(rx, rx->slots[rx->head].buf_idx));
            ring_move(rx, ring_next(rx, rx->head));
            if (got == sequence + 1)
                return heard;
            heard++;
        }
    }
}

/* Nothing is learned from frames with NS_NO_LEARN, and they arrive in order among others. */
static void no_learn_case(void) {
    struct port a = port_open("lan0:a"), b = port_open("lan0:b"), c = port_open("lan0:c");
    put_flagged(&a, 0, SLOT_NO_LEARN);
    put_flagged(&a, 1, SLOT_NO_LEARN);
    CHECK(ioctl(a.fd, NM_TXSYNC, NULL) == 0);
    expect(&b, 0, 2);
    expect(&c, 0, 2);
    CHECK(hearers_of_9(&b, &a, &c, 2) == 2);
    for (uint32_t at = 0; at < 30; at++)
        put_flagged(&a, 10 + at, at % 3 == 0 ? SLOT_NO_LEARN : 0);
    CHECK(ioctl(a.fd, NM_TXSYNC, NULL) == 0);
    expect(&b, 10, 30);
    expect(&c, 10, 30);
    CHECK(hearers_of_9(&b, &a, &c, 50) == 1);
    /* The address stays where it was learned. */
    put_flagged(&c, 60, SLOT_NO_LEARN);
    CHECK(ioctl(c.fd, NM_TXSYNC, NULL) == 0);
    expect(&b, 60, 1);
    expect(&a, 60, 1);
    CHECK(hearers_of_9(&b, &a, &c, 70) == 1);
}

static const struct test_case cases[] = {
    {"swap", swap_case}, {"extra", extra_case}, {"slots", slots_case}, {"bad-ring", bad_ring_case},
    {"no-address", no_address_case}, {"no-learn", no_learn_case},
};

int main(int argc, char **argv) {
    return run_case(cases, sizeof(cases) / sizeof(cases[0]), argc, argv);
}
