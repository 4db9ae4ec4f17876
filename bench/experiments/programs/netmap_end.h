/* A source and sink of frames at a netmap port, as pkt-gen is one: the buffers are prepared once, and received frames are counted. */
#ifndef NETMAP_END_H
#define NETMAP_END_H

#include "frame.h"
#include "port.h"

enum { SLOTS = 2048 };

struct netmap_end {
    struct port port;
    char frame[FRAME_MOST];
    unsigned size, batch;
    /* Frames that are still to be written before buffers are sent again as they are; without limit if every frame is written. */
    uint64_t to_write;
    uint32_t sequence;
    /* Of the first bytes of all received frames, so that they are read. */
    char first_bytes;
};

static inline void netmap_open(struct netmap_end *end, const char *name) {
    *end = (struct netmap_end){.port = port_make(name, (struct nm_register){.tx_slots = SLOTS, .rx_slots = SLOTS})};
}

static inline void netmap_aim(struct netmap_end *end, int to, int from, unsigned size, int write_each) {
    frame_make(end->frame, size, to, from);
    end->size = size;
    end->to_write = write_each ? UINT64_MAX : 65536;
}

/* Fills up to `most` slots and moves `head`. The caller synchronises. */
static inline unsigned netmap_fill(struct netmap_end *end, unsigned most) {
    struct nm_ring *ring = end->port.tx[0];
    unsigned room = ring_space(ring), count = room < most ? room : most;
    uint32_t at = ring->head;
    for (unsigned i = 0; i < count; i++) {
        struct nm_slot *slot = &ring->slots[at];
        if (end->to_write) {
            char *buffer = ring_buf(ring, slot->buf_idx);
            memcpy(buffer, end->frame, end->size);
            memcpy(buffer + 14, &end->sequence, sizeof(end->sequence));
            end->sequence++;
            end->to_write--;
        }
        slot->len = end->size;
        slot->flags = 0;
        at = ring_next(ring, at);
    }
    ring->head = ring->cur = at;
    return count;
}

/* Takes up to `most` received frames. The caller synchronises. */
static inline unsigned netmap_take(struct netmap_end *end, unsigned most) {
    struct nm_ring *ring = end->port.rx[0];
    unsigned there = ring_space(ring), count = there < most ? there : most;
    uint32_t at = ring->head;
    for (unsigned i = 0; i < count; i++) {
        end->first_bytes ^= *ring_buf(ring, ring->slots[at].buf_idx);
        at = ring_next(ring, at);
    }
    ring->head = ring->cur = at;
    return count;
}

static inline void netmap_sync(struct netmap_end *end, unsigned long number) {
    if (ioctl(end->port.fd, number, NULL) != 0)
        FAIL("synchronisation: errno %d", errno);
}

static inline unsigned netmap_send(struct netmap_end *end) {
    unsigned count = netmap_fill(end, end->batch);
    netmap_sync(end, NM_TXSYNC);
    return count;
}

static inline unsigned netmap_receive(struct netmap_end *end) {
    netmap_sync(end, NM_RXSYNC);
    return netmap_take(end, end->batch);
}

/* Sends one broadcast, so that the switch learns the address. */
static inline void netmap_introduce(struct netmap_end *end, int from) {
    struct nm_ring *ring = end->port.tx[0];
    CHECK(ring_space(ring) > 0);
    struct nm_slot *slot = &ring->slots[ring->head];
    frame_make(ring_buf(ring, slot->buf_idx), 60, 0, from);
    slot->len = 60;
    slot->flags = 0;
    ring->head = ring->cur = ring_next(ring, ring->head);
    netmap_sync(end, NM_TXSYNC);
}

/* Takes all received frames; returns true if one is from this address. */
static inline int netmap_has_heard(struct netmap_end *end, int from) {
    netmap_sync(end, NM_RXSYNC);
    struct nm_ring *ring = end->port.rx[0];
    int heard = 0;
    for (; ring->head != ring->tail; ring->head = ring->cur = ring_next(ring, ring->head))
        heard |= frame_is_from(ring_buf(ring, ring->slots[ring->head].buf_idx), from);
    return heard;
}

#endif
