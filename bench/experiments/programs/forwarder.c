/* A forwarder between two ports of one memory, with a source and a sink at its sides, all in one thread:
 *     forwarder swap|copy SOURCE LEFT RIGHT SINK SIZE [count BATCHES]
 * SOURCE and LEFT are ports of one switch, RIGHT and SINK of another. `swap` gives a received buffer to the ring that sends it, as
 * netmap's bridge does; `copy` copies the frame. With `count` it forwards so many whole batches, each by one call of `forward`, whose
 * instructions a profiler counts, and prints the number of frames. */
#include "netmap_end.h"
#include "turns.h"

enum { SOURCE = 1, SINK = 2, BATCH = 256 };

static struct netmap_end source, left, right, sink;
static int swaps;

static inline unsigned move(struct nm_ring *from, struct nm_ring *to) {
    unsigned there = ring_space(from), room = ring_space(to), count = there < room ? there : room;
    uint32_t in = from->head, out = to->head;
    for (unsigned i = 0; i < count; i++) {
        struct nm_slot *received = &from->slots[in], *sent = &to->slots[out];
        if (swaps) {
            uint32_t buffer = sent->buf_idx;
            sent->buf_idx = received->buf_idx;
            received->buf_idx = buffer;
            received->flags = sent->flags = SLOT_CHANGED;
        } else {
            memcpy(ring_buf(to, sent->buf_idx), ring_buf(from, received->buf_idx), received->len);
            sent->flags = 0;
        }
        sent->len = received->len;
        in = ring_next(from, in);
        out = ring_next(to, out);
    }
    from->head = from->cur = in;
    to->head = to->cur = out;
    return count;
}

static __attribute__((noinline)) unsigned forward(void) {
    netmap_sync(&left, NM_RXSYNC);
    unsigned count = move(left.port.rx[0], right.port.tx[0]);
    netmap_sync(&right, NM_TXSYNC);
    return count;
}

static uint64_t by_turns(uint64_t end) {
    uint64_t frames = 0;
    do {
        for (int i = 0; i < TURNS_PER_LOOK; i++) {
            netmap_send(&source);
            forward();
            frames += netmap_receive(&sink);
        }
    } while (clock_ns() < end);
    return frames;
}

/* The sink's address gets to the source through the forwarder, the other way round. */
static void introduce(double end) {
    netmap_introduce(&sink, SINK);
    do {
        CHECK(now() < end);
        netmap_sync(&right, NM_RXSYNC);
        move(right.port.rx[0], left.port.tx[0]);
        netmap_sync(&left, NM_TXSYNC);
    } while (!netmap_has_heard(&source, SINK));
}

static void count_batches(unsigned batches) {
    uint64_t frames = 0;
    for (unsigned i = 0; i < batches; i++) {
        double end = now() + PATIENCE;
        for (unsigned sent = 0; sent < BATCH && now() < end; netmap_sync(&source, NM_TXSYNC))
            sent += netmap_fill(&source, BATCH - sent);
        while (ring_space(left.port.rx[0]) < BATCH || ring_space(right.port.tx[0]) < BATCH) {
            netmap_sync(&left, NM_RXSYNC);
            netmap_sync(&right, NM_TXSYNC);
            CHECK(now() < end);
        }
        frames += forward();
        for (unsigned got = 0; got < BATCH; got += netmap_receive(&sink))
            CHECK(now() < end);
    }
    printf("%llu\n", (unsigned long long)frames);
}

int main(int count, char **words) {
    if (count != 7 && count != 9)
        FAIL("forwarder swap|copy SOURCE LEFT RIGHT SINK SIZE [count BATCHES]");
    swaps = strcmp(words[1], "swap") == 0;
    netmap_open(&source, words[2]);
    netmap_open(&left, words[3]);
    netmap_open(&right, words[4]);
    netmap_open(&sink, words[5]);
    CHECK(left.port.reg.mem_id == right.port.reg.mem_id);
    netmap_aim(&source, SINK, SOURCE, atoi(words[6]), 0);
    source.batch = sink.batch = BATCH;
    introduce(now() + PATIENCE);
    if (count == 9)
        count_batches(atoi(words[8]));
    else
        serve(by_turns, FRAMES_BEFORE);
}
