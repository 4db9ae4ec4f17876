/* Every verb of the library against a running switch: verbs SOCKET[,SOCKET...] SCENE[,SCENE...], a socket for each scene. A mistake is a line on stderr and exit status 1. */
#define _POSIX_C_SOURCE 200809L
#include <poll.h>
#include <pthread.h>
#include <ringway.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                                                \
    do {                                                                                                                \
        if (!(condition)) {                                                                                             \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);                              \
            exit(1);                                                                                                    \
        }                                                                                                               \
    } while (0)
#define SECOND INT64_C(1000000000)
#define PATIENCE (300 * SECOND)

static const char *attach_socket;

static ringway_port *attach(const char *name, const ringway_shape *shape) {
    ringway_port *port;
    char text[256] = "";
    if (ringway_attach(attach_socket, name, shape, &port, text, sizeof text) != 0) {
        fprintf(stderr, "%s: %s\n", name, text);
        exit(1);
    }
    return port;
}

/* Writes a frame of this length: broadcast, from a port's number, with a number in every byte. */
static void make(uint8_t *frame, size_t length, uint8_t from, uint8_t number) {
    memset(frame, 0xff, 6);
    const uint8_t source[6] = {2, 0, 0, 0, 0, from};
    memcpy(frame + 6, source, 6);
    frame[12] = 0x88;
    frame[13] = 0xb5;
    memset(frame + 14, number, length - 14);
}

static int is(const uint8_t *frame, size_t length, size_t wanted, uint8_t from, uint8_t number) {
    if (length != wanted || frame[11] != from)
        return 0;
    for (size_t at = 14; at < length; at++)
        if (frame[at] != number)
            return 0;
    return 1;
}

/* Waits until so many slots have been received. */
static void await(ringway_port *port, uint32_t ring, int slots) {
    while (ringway_available(port, ring) < slots) {
        CHECK(ringway_wait_rx(port, PATIENCE) == 1);
        CHECK(ringway_ended(port, NULL, 0) == 0);
    }
}

static void by_copy(void) {
    ringway_port *a = attach("lan0:a", NULL), *b = attach("lan0:b", NULL);
    uint8_t frame[9000], got[9000];
    size_t length = 0;
    CHECK(ringway_pop(b, 0, got, sizeof got, &length) == 0);
    CHECK(ringway_wait_rx(b, 0) == 0 && ringway_wait_rx(b, SECOND / 1000) == 0);
    CHECK(ringway_wait_tx(a, PATIENCE) == 1);
    CHECK(ringway_room(a, 0) == 511);
    /* The second frame takes several slots. */
    const size_t lengths[3] = {60, 9000, 1514};
    for (uint8_t number = 0; number < 3; number++) {
        make(frame, lengths[number], 1, number);
        CHECK(ringway_push(a, 0, frame, lengths[number]) == 1);
    }
    CHECK(ringway_flush(a) == 0);
    await(b, 0, 1 + 5 + 1);
    CHECK(ringway_pop(b, 0, got, 59, &length) == RINGWAY_E_LENGTH && length == 60);
    for (uint8_t number = 0; number < 3; number++) {
        CHECK(ringway_pop(b, 0, got, sizeof got, &length) == 1);
        CHECK(is(got, length, lengths[number], 1, number));
    }
    CHECK(ringway_pop(b, 0, got, sizeof got, &length) == 0);
    static uint8_t longest[65536];
    CHECK(ringway_longest(a, 0) == 65535 && ringway_longest(a, 1) == RINGWAY_E_ARGUMENT);
    make(longest, sizeof longest, 1, 7);
    CHECK(ringway_push(a, 0, longest, 65536) == RINGWAY_E_LENGTH);
    CHECK(ringway_push(a, 0, longest, 65535) == 1 && ringway_flush(a) == 0);
    await(b, 0, 32);
    static uint8_t received[65536];
    CHECK(ringway_pop(b, 0, received, sizeof received, &length) == 1 && is(received, length, 65535, 1, 7));
    CHECK(ringway_push(a, 0, frame, (size_t)-1) == RINGWAY_E_LENGTH);
    /* Until there is no room. */
    int queued = 0;
    while (ringway_push(a, 0, frame, 60) == 1)
        queued++;
    CHECK(queued <= 511);
    ringway_detach(a);
    ringway_detach(b);
}

struct seen {
    int frames;
    size_t bytes;
};

static void see(void *context, const uint8_t *frame, size_t length) {
    struct seen *seen = context;
    CHECK(is(frame, length, 60 + (size_t)seen->frames, 1, (uint8_t)seen->frames));
    seen->frames++;
    seen->bytes += length;
}

/* Frames of several lengths, around the rings more than once. */
static void batches(void) {
    ringway_port *a = attach("lan0:a", NULL), *b = attach("lan0:b", NULL);
    ringway_slot slots[100];
    for (int round = 0; round < 20; round++) {
        while (ringway_room(a, 0) < 100)
            CHECK(ringway_wait_tx(a, PATIENCE) == 1);
        CHECK(ringway_reserve(a, 0, slots, 100) == 100);
        for (uint8_t number = 0; number < 100; number++) {
            CHECK(slots[number].length == 2112 && slots[number].flags == 0);
            slots[number].length = 60u + number;
            make(slots[number].data, slots[number].length, 1, number);
        }
        CHECK(ringway_commit(a, 0, slots, 100) == 0);
        CHECK(ringway_flush(a) == 0);
        await(b, 0, 100);
        CHECK(ringway_peek(b, 0, slots, 100) == 100);
        ringway_slot again[100];
        CHECK(ringway_peek(b, 0, again, 100) == 100);
        for (uint8_t number = 0; number < 100; number++) {
            CHECK(is(slots[number].data, slots[number].length, 60u + number, 1, number) && slots[number].flags == 0);
            CHECK(again[number].data == slots[number].data);
        }
        CHECK(ringway_release(b, 0, 40) == 0);
        CHECK(ringway_peek(b, 0, again, 1) == 1 && again[0].data == slots[40].data);
        CHECK(ringway_release(b, 0, 60) == 0);
        CHECK(ringway_release(b, 0, 1) == RINGWAY_E_ARGUMENT);
    }
    /* Frames of the caller, and a function for each. */
    uint8_t bytes[50][128];
    ringway_frame frames[50];
    for (uint8_t number = 0; number < 50; number++) {
        make(bytes[number], 60u + number, 1, number);
        frames[number].data = bytes[number];
        frames[number].length = 60u + number;
    }
    while (ringway_room(a, 0) < 50)
        CHECK(ringway_wait_tx(a, PATIENCE) == 1);
    CHECK(ringway_push_batch(a, 0, frames, 50) == 50);
    CHECK(ringway_flush_ring(a, 0) == 0);
    await(b, 0, 50);
    struct seen seen = {0, 0};
    CHECK(ringway_drain(b, 0, 20, see, &seen) == 20);
    CHECK(ringway_drain(b, 0, 1000, see, &seen) == 30);
    CHECK(ringway_drain(b, 0, 1000, see, &seen) == 0);
    CHECK(seen.bytes == 50 * 60 + 49 * 50 / 2);
    ringway_detach(a);
    ringway_detach(b);
}

/* Runs of slots: the same memory, with the words of the slots. */
static void runs(void) {
    ringway_port *a = attach("lan0:a", NULL), *b = attach("lan0:b", NULL);
    ringway_run run;
    uint8_t sent = 0, received = 0;
    int wraps = 0;
    for (int round = 0; round < 50; round++) {
        while (ringway_room(a, 0) < 100)
            CHECK(ringway_wait_tx(a, PATIENCE) == 1);
        for (int left = 100; left > 0;) {
            int count = ringway_reserve_run(a, 0, &run, (size_t)left);
            CHECK(count > 0 && count <= left && run.count == (uint32_t)count && run.buffer_size == 2112);
            wraps += count < left;
            for (uint32_t slot = 0; slot < run.count; slot++) {
                ringway_run_prefetch(&run, slot, 1);
                make(ringway_run_data(&run, slot), 60u + sent, 1, sent);
                ringway_run_set(&run, slot, 60u + sent, 0);
                sent = (uint8_t)(sent + 1);
            }
            CHECK(ringway_commit_run(a, 0, (size_t)count) == 0);
            left -= count;
        }
        CHECK(ringway_flush(a) == 0);
        await(b, 0, 100);
        for (int left = 100; left > 0;) {
            int count = ringway_peek_run(b, 0, &run, (size_t)left);
            CHECK(count > 0 && count <= left);
            for (uint32_t slot = 0; slot < run.count; slot++) {
                ringway_run_prefetch(&run, slot, 0);
                CHECK(is(ringway_run_data(&run, slot), ringway_run_length(&run, slot), 60u + received, 1, received));
                CHECK(ringway_run_more(&run, slot) == 0);
                received = (uint8_t)(received + 1);
            }
            CHECK(ringway_release(b, 0, (size_t)count) == 0);
            left -= count;
        }
    }
    CHECK(wraps > 0);
    CHECK(ringway_commit_run(a, 0, 512) == RINGWAY_E_ARGUMENT);
    /* A frame in two slots. Nothing of it is sent before both are committed. */
    while (ringway_room(a, 0) < 2)
        CHECK(ringway_wait_tx(a, PATIENCE) == 1);
    uint8_t frame[3000], got[3000];
    make(frame, sizeof frame, 1, 9);
    for (uint32_t piece = 0; piece < 2; piece++) {
        uint32_t length = piece == 0 ? 2112 : 3000 - 2112;
        CHECK(ringway_reserve_run(a, 0, &run, 1) == 1);
        memcpy(ringway_run_data(&run, 0), frame + 2112 * piece, length);
        ringway_run_set(&run, 0, length, piece == 0);
        CHECK(ringway_commit_run(a, 0, 1) == 0);
    }
    CHECK(ringway_flush(a) == 0);
    await(b, 0, 2);
    CHECK(ringway_peek_run(b, 0, &run, 1) == 1 && ringway_run_more(&run, 0) == 1 && ringway_run_length(&run, 0) == 2112);
    size_t length;
    CHECK(ringway_pop(b, 0, got, sizeof got, &length) == 1 && length == 3000 && memcmp(got, frame, length) == 0);
    ringway_detach(a);
    ringway_detach(b);
}

/* A frame in three buffers, both ways without a copy; and what ringway_commit() refuses. */
static void pieces(void) {
    ringway_shape small = RINGWAY_SHAPE_INIT;
    small.buffer_size = 128;
    small.tx_slots = small.rx_slots = 16;
    ringway_port *a = attach("lan0:a", &small), *b = attach("lan0:b", &small);
    ringway_slot slots[16];
    CHECK(ringway_reserve(a, 0, slots, 16) == 15);
    uint8_t frame[300];
    make(frame, sizeof frame, 1, 7);
    for (int piece = 0; piece < 3; piece++) {
        size_t from = (size_t)piece * 128, left = sizeof frame - from;
        slots[piece].length = left < 128 ? (uint32_t)left : 128;
        slots[piece].flags = piece < 2 ? RINGWAY_MORE : 0;
        memcpy(slots[piece].data, frame + from, slots[piece].length);
    }
    CHECK(ringway_commit(a, 0, slots, 2) == RINGWAY_E_ARGUMENT); /* an incomplete frame */
    CHECK(ringway_commit(a, 0, slots, 16) == RINGWAY_E_ARGUMENT); /* more than there are */
    CHECK(ringway_commit(a, 0, slots, 1000000) == RINGWAY_E_ARGUMENT);
    slots[3].length = 129;
    CHECK(ringway_commit(a, 0, slots, 4) == RINGWAY_E_ARGUMENT); /* longer than a buffer */
    CHECK(ringway_commit(a, 0, slots, 3) == 0);
    CHECK(ringway_flush(a) == 0);
    await(b, 0, 3);
    CHECK(ringway_peek(b, 0, slots, 16) == 3);
    size_t length = 0;
    for (int piece = 0; piece < 3; piece++) {
        CHECK(slots[piece].flags == (piece < 2 ? RINGWAY_MORE : 0u));
        CHECK(memcmp(slots[piece].data, frame + length, slots[piece].length) == 0);
        length += slots[piece].length;
    }
    CHECK(length == sizeof frame);
    CHECK(ringway_release(b, 0, 3) == 0);
    ringway_detach(a);
    ringway_detach(b);
}

/* An event loop of the caller, with the descriptors of the port. */
static void event_loop(void) {
    ringway_port *a = attach("lan0:a", NULL), *b = attach("lan0:b", NULL);
    struct pollfd on[2] = {{ringway_call_fd(b), POLLIN, 0}, {ringway_connection_fd(b), POLLIN, 0}};
    CHECK(on[0].fd >= 0 && on[1].fd >= 0);
    uint8_t frame[60], got[60];
    size_t length;
    for (uint8_t number = 0; number < 20; number++) {
        CHECK(ringway_clear_call(b) == 0);
        CHECK(ringway_want_rx(b) == 0);
        CHECK(poll(on, 2, 0) == 0);
        make(frame, sizeof frame, 1, number);
        CHECK(ringway_push(a, 0, frame, sizeof frame) == 1 && ringway_flush(a) == 0);
        CHECK(poll(on, 2, 300000) == 1 && on[0].revents == POLLIN);
        CHECK(ringway_clear_call(b) == 1);
        CHECK(ringway_want_rx(b) == 1);
        CHECK(ringway_want_nothing(b) == 0);
        CHECK(ringway_pop(b, 0, got, sizeof got, &length) == 1 && is(got, length, 60, 1, number));
    }
    CHECK(ringway_want_tx(b) == 1);
    CHECK(ringway_want_nothing(b) == 0);
    ringway_detach(a);
    ringway_detach(b);
}

/* A UDP datagram over IPv4 whose checksum is left to the receiver. */
static size_t unsummed(uint8_t *frame, ringway_offload *offload) {
    static const uint8_t headers[42] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 0,
                                        0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0x66, 0xbd, 10, 0, 0, 1, 10, 0, 0, 2,
                                        0, 7, 0, 9, 0, 26, 0x14, 0x2e};
    memcpy(frame, headers, sizeof headers);
    memset(frame + 42, 5, 18);
    memset(offload, 0, sizeof *offload);
    offload->needs_csum = 1;
    offload->csum_start = 34;
    offload->csum_offset = 6;
    return 60;
}

/* The sum of a datagram's 16-bit words with its pseudo-header: 0xffff if it is right. */
static unsigned sum(const uint8_t *frame) {
    unsigned long total = 17 + 26;
    for (int at = 26; at < 60; at += 2)
        total += (unsigned long)frame[at] << 8 | frame[at + 1];
    while (total > 0xffff)
        total = (total & 0xffff) + (total >> 16);
    return (unsigned)total;
}

static void offloads(void) {
    ringway_shape shape = RINGWAY_SHAPE_INIT;
    shape.offload = 1;
    ringway_port *a = attach("lan0:a", &shape), *b = attach("lan0:b", &shape), *plain = attach("lan0:plain", NULL);
    uint8_t frame[60], got[128];
    ringway_offload offload, seen;
    size_t length = unsummed(frame, &offload);
    CHECK(ringway_push_offloaded(a, 0, frame, length, &offload) == 1);
    /* The same, in place. */
    ringway_slot slot;
    CHECK(ringway_reserve(a, 0, &slot, 1) == 1);
    CHECK(ringway_offload_encode(&offload, slot.data) == 0);
    memcpy(slot.data + RINGWAY_OFFLOAD_BYTES, frame, length);
    slot.length = RINGWAY_OFFLOAD_BYTES + (uint32_t)length;
    CHECK(ringway_commit(a, 0, &slot, 1) == 0);
    CHECK(ringway_push_offloaded(a, 0, frame, length, NULL) == 1);
    CHECK(ringway_flush(a) == 0);
    await(b, 0, 3);
    ringway_slot slots[3];
    CHECK(ringway_peek(b, 0, slots, 3) == 3);
    for (int number = 0; number < 3; number++) {
        CHECK(slots[number].length == RINGWAY_OFFLOAD_BYTES + 60);
        CHECK(memcmp(slots[number].data + RINGWAY_OFFLOAD_BYTES, frame, 60) == 0);
        CHECK(ringway_offload_decode(slots[number].data, &seen) == (number < 2));
        CHECK(seen.needs_csum == (number < 2) && seen.csum_start == (number < 2 ? 34 : 0));
        CHECK(seen.gso == RINGWAY_GSO_NONE);
    }
    CHECK(ringway_release(b, 0, 3) == 0);
    /* A port without the header gets frames that are finished. */
    await(plain, 0, 3);
    for (int number = 0; number < 3; number++) {
        CHECK(ringway_pop(plain, 0, got, sizeof got, &length) == 1 && length == 60);
        CHECK((sum(got) == 0xffff) == (number < 2));
    }
    offload.gso = RINGWAY_GSO_TCP4; /* without the size of a segment */
    CHECK(ringway_push_offloaded(a, 0, frame, 60, &offload) == RINGWAY_E_OFFLOAD);
    CHECK(ringway_offload_encode(&offload, got) == RINGWAY_E_OFFLOAD);
    offload.gso = 77;
    CHECK(ringway_offload_encode(&offload, got) == RINGWAY_E_OFFLOAD);
    const uint8_t bad[RINGWAY_OFFLOAD_BYTES] = {1, 99};
    CHECK(ringway_offload_decode(bad, &seen) == RINGWAY_E_OFFLOAD);
    CHECK(ringway_offload_encode(NULL, got) == 0 && ringway_offload_decode(got, &seen) == 0);
    ringway_detach(a);
    ringway_detach(b);
    ringway_detach(plain);
}

struct sender {
    ringway_port *port;
    uint32_t ring;
};

#define EACH 2000

static void *send_frames(void *argument) {
    struct sender *sender = argument;
    uint8_t frame[60];
    make(frame, sizeof frame, (uint8_t)(1 + sender->ring), 0);
    for (int sent = 0; sent < EACH;) {
        if (ringway_push(sender->port, sender->ring, frame, sizeof frame) == 1)
            sent++;
        else
            CHECK(ringway_flush_ring(sender->port, sender->ring) == 0);
    }
    CHECK(ringway_flush_ring(sender->port, sender->ring) == 0);
    return NULL;
}

/* Two threads send, each on a ring of its own; this one receives. */
static void threads(void) {
    ringway_shape shape = RINGWAY_SHAPE_INIT;
    shape.tx_rings = 2;
    shape.rx_slots = 8192;
    ringway_port *a = attach("lan0:a", &shape), *b = attach("lan0:b", &shape);
    CHECK(ringway_tx_rings(a) == 2 && ringway_rx_rings(a) == 1);
    struct sender senders[2] = {{a, 0}, {a, 1}};
    pthread_t thread[2];
    int got[2] = {0, 0};
    for (int number = 0; number < 2; number++)
        CHECK(pthread_create(&thread[number], NULL, send_frames, &senders[number]) == 0);
    while (got[0] + got[1] < 2 * EACH) {
        CHECK(ringway_wait_rx(b, PATIENCE) == 1);
        ringway_slot slots[64];
        int count = ringway_peek(b, 0, slots, 64);
        for (int number = 0; number < count; number++)
            got[slots[number].data[11] - 1]++;
        CHECK(ringway_release(b, 0, (size_t)count) == 0);
    }
    for (int number = 0; number < 2; number++)
        CHECK(pthread_join(thread[number], NULL) == 0);
    CHECK(got[0] == EACH && got[1] == EACH);
    ringway_detach(a);
    ringway_detach(b);
}

static void refused(const char *socket, const char *name, const ringway_shape *shape, int code, const char *wanted) {
    ringway_port *port = (ringway_port *)1;
    char text[512] = "";
    int got = ringway_attach(socket, name, shape, &port, text, sizeof text);
    if (got != code || port != NULL || strstr(text, wanted) == NULL) {
        fprintf(stderr, "%s: %d (%s), expected %d, and \"%s\" in: %s\n", name, got, ringway_strerror(got), code, wanted, text);
        exit(1);
    }
    char cut[4] = "xyz";
    CHECK(ringway_attach(socket, name, shape, &port, cut, sizeof cut) == code && strlen(cut) == 3);
    CHECK(ringway_attach(socket, name, shape, &port, NULL, 100) == code);
}

static void errors(void) {
    refused("/nonexistent/attach.sock", "lan0:a", NULL, RINGWAY_E_UNREACHABLE, "no switch at /nonexistent/attach.sock");
    refused(NULL, "lan0:a", NULL, RINGWAY_E_UNREACHABLE, "no switch at /from/the/environment");
    /* Empty is as unset. Where a switch is at the default path, it refuses a port of no switch of its own. */
    CHECK(setenv("RINGWAY_ATTACH_SOCKET", "", 1) == 0);
    char why[512] = "";
    ringway_port *none;
    int code = ringway_attach(NULL, "no-such-switch:a", NULL, &none, why, sizeof why);
    CHECK(code == RINGWAY_E_REFUSED || (code == RINGWAY_E_UNREACHABLE && strstr(why, "no switch at /run/ringway/attach.sock")));
    refused(attach_socket, "lan0", NULL, RINGWAY_E_NAME, "SWITCH:PORT");
    refused(attach_socket, "lan0:\xff", NULL, RINGWAY_E_NAME, "UTF-8");
    refused(attach_socket, "lan0:a/b", NULL, RINGWAY_E_NAME, "a/b");
    refused(attach_socket, "other:a", NULL, RINGWAY_E_REFUSED, "the switch refused: ");
    refused(attach_socket, NULL, NULL, RINGWAY_E_ARGUMENT, "name is NULL");
    ringway_port *a = attach("lan0:a", NULL);
    refused(attach_socket, "lan0:a", NULL, RINGWAY_E_REFUSED, "the switch refused: ");
    ringway_shape shape = RINGWAY_SHAPE_INIT;
    shape.tx_slots = 3;
    refused(attach_socket, "lan0:b", &shape, RINGWAY_E_SHAPE, "tx_slots 3 is not possible: 4 to 32768");
    shape.tx_slots = 0;
    shape.rx_rings = 70000;
    refused(attach_socket, "lan0:b", &shape, RINGWAY_E_SHAPE, "rx_rings 70000 is not possible: 1 to 16");
    shape.rx_rings = 0;
    shape.offload = 2;
    refused(attach_socket, "lan0:b", &shape, RINGWAY_E_SHAPE, "offload 2");
    shape.offload = 0;
    shape.size = 0;
    refused(attach_socket, "lan0:b", &shape, RINGWAY_E_SHAPE, "RINGWAY_SHAPE_INIT");
    /* A later header's shape: its new members may be 0. */
    struct {
        ringway_shape known;
        uint64_t later;
    } later = {RINGWAY_SHAPE_INIT, 0};
    later.known.size = sizeof later;
    ringway_detach(attach("lan0:b", &later.known));
    later.later = 1;
    refused(attach_socket, "lan0:b", &later.known, RINGWAY_E_SHAPE, "update the library");

    /* NULL and rings that do not exist, everywhere. */
    uint8_t bytes[64] = {0}, mac[6];
    ringway_slot slot = {bytes, 60, 0};
    ringway_frame frame = {bytes, 60}, null = {NULL, 60};
    ringway_offload offload;
    ringway_run run;
    size_t length;
    const int bad[] = {
        ringway_attach(attach_socket, "lan0:b", NULL, NULL, NULL, 0),
        ringway_mac(NULL, &mac), ringway_mac(a, NULL),
        ringway_flush(NULL), ringway_flush_ring(NULL, 0), ringway_flush_ring(a, 1),
        ringway_wait_rx(NULL, 0), ringway_wait_tx(NULL, 0),
        ringway_call_fd(NULL), ringway_connection_fd(NULL),
        ringway_want_rx(NULL), ringway_want_tx(NULL), ringway_want_nothing(NULL), ringway_clear_call(NULL),
        ringway_ended(NULL, NULL, 0),
        ringway_room(NULL, 0), ringway_room(a, 1), ringway_available(NULL, 0), ringway_available(a, 4000000000u),
        ringway_push(NULL, 0, bytes, 60), ringway_push(a, 1, bytes, 60), ringway_push(a, 0, NULL, 60),
        ringway_push_batch(NULL, 0, &frame, 1), ringway_push_batch(a, 1, &frame, 1), ringway_push_batch(a, 0, NULL, 1),
        ringway_push_batch(a, 0, &null, 1),
        ringway_push_offloaded(NULL, 0, bytes, 60, NULL), ringway_push_offloaded(a, 0, NULL, 60, NULL),
        ringway_reserve(NULL, 0, &slot, 1), ringway_reserve(a, 1, &slot, 1), ringway_reserve(a, 0, NULL, 1),
        ringway_commit(NULL, 0, &slot, 1), ringway_commit(a, 1, &slot, 1), ringway_commit(a, 0, NULL, 1),
        ringway_peek(NULL, 0, &slot, 1), ringway_peek(a, 1, &slot, 1), ringway_peek(a, 0, NULL, 1),
        ringway_reserve_run(NULL, 0, &run, 1), ringway_reserve_run(a, 1, &run, 1), ringway_reserve_run(a, 0, NULL, 1),
        ringway_commit_run(NULL, 0, 1), ringway_commit_run(a, 1, 1), ringway_commit_run(a, 0, 512),
        ringway_peek_run(NULL, 0, &run, 1), ringway_peek_run(a, 1, &run, 1), ringway_peek_run(a, 0, NULL, 1),
        ringway_release(NULL, 0, 0), ringway_release(a, 1, 0), ringway_release(a, 0, 1),
        ringway_pop(NULL, 0, bytes, 64, &length), ringway_pop(a, 1, bytes, 64, &length),
        ringway_pop(a, 0, NULL, 64, &length), ringway_pop(a, 0, bytes, 64, NULL),
        ringway_drain(NULL, 0, 1, see, NULL), ringway_drain(a, 1, 1, see, NULL), ringway_drain(a, 0, 1, NULL, NULL),
        ringway_offload_encode(NULL, NULL), ringway_offload_decode(NULL, &offload), ringway_offload_decode(bytes, NULL),
    };
    for (size_t number = 0; number < sizeof bad / sizeof *bad; number++)
        if (bad[number] != RINGWAY_E_ARGUMENT) {
            fprintf(stderr, "bad call %zu: %d\n", number, bad[number]);
            exit(1);
        }
    CHECK(ringway_tx_rings(NULL) == 0 && ringway_rx_rings(NULL) == 0);
    CHECK(ringway_mac(a, &mac) == 0 && mac[0] == 0);
    ringway_port *bound = attach("lan0:bound", NULL);
    const uint8_t wanted[6] = {2, 0, 0, 0, 0, 9};
    CHECK(ringway_mac(bound, &mac) == 1 && memcmp(mac, wanted, 6) == 0);
    ringway_detach(bound);
    ringway_detach(a);
    ringway_detach(NULL);
    /* The port is free again. */
    for (;;) {
        ringway_port *port;
        int got = ringway_attach(attach_socket, "lan0:a", NULL, &port, NULL, 0);
        if (got == 0) {
            ringway_detach(port);
            break;
        }
        CHECK(got == RINGWAY_E_REFUSED);
    }
}

static volatile sig_atomic_t signals;

static void on_signal(int number) {
    (void)number;
    signals++;
}

/* A signal ends a wait, as it ends poll(2), and the port goes on. */
static void interrupted(void) {
    ringway_port *a = attach("lan0:a", NULL), *b = attach("lan0:b", NULL);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    /* Again and again: a signal may come before the wait. */
    const struct itimerspec often = {{0, 20000000}, {0, 20000000}}, never = {{0, 0}, {0, 0}};
    timer_t timer;
    CHECK(timer_create(CLOCK_MONOTONIC, NULL, &timer) == 0 && timer_settime(timer, 0, &often, NULL) == 0);
    CHECK(ringway_wait_rx(b, -1) == RINGWAY_E_INTERRUPTED && signals > 0);
    CHECK(ringway_wait_rx(b, PATIENCE) == RINGWAY_E_INTERRUPTED);
    /* What is not published leaves no room, however long it is. */
    uint8_t frame[60];
    make(frame, sizeof frame, 1, 7);
    while (ringway_push(a, 0, frame, sizeof frame) == 1)
        ;
    CHECK(ringway_wait_tx(a, -1) == RINGWAY_E_INTERRUPTED);
    CHECK(timer_settime(timer, 0, &never, NULL) == 0 && timer_delete(timer) == 0);
    CHECK(ringway_flush(a) == 0);
    int got;
    while ((got = ringway_wait_rx(b, PATIENCE)) == RINGWAY_E_INTERRUPTED)
        ;
    CHECK(got == 1 && ringway_wait_tx(a, PATIENCE) == 1);
    ringway_detach(a);
    ringway_detach(b);
}

/* What is in the program's memory is sent from there, and received frames are there. */
static void own_memory(void) {
    ringway_memory *memory, *none;
    CHECK(ringway_memory_new(4 << 20, 64, &memory) == 0);
    CHECK(ringway_memory_new(4 << 20, 3, &none) == RINGWAY_E_ARGUMENT && none == NULL);
    CHECK(ringway_memory_new(4 << 20, 128, &none) == RINGWAY_E_ARGUMENT && ringway_memory_new(1, 1, NULL) == RINGWAY_E_ARGUMENT);
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    CHECK(ringway_memory_from_fd(-1, 64, &none) == RINGWAY_E_ARGUMENT && ringway_memory_from_fd(pipes[0], 64, &none) < 0);
    CHECK(close(pipes[0]) == 0 && close(pipes[1]) == 0);
    ringway_port *a, *b = attach("lan0:b", NULL), *bad;
    char text[256] = "";
    CHECK(ringway_attach_with_memory(attach_socket, "lan0:a", NULL, memory, &a, text, sizeof text) == 0);
    CHECK(ringway_attach_with_memory(attach_socket, "lan0:c", NULL, NULL, &bad, text, sizeof text) == RINGWAY_E_ARGUMENT);
    CHECK(bad == NULL && strstr(text, "memory is NULL"));
    /* Buffers of a second port do not fit. */
    CHECK(ringway_attach_with_memory(attach_socket, "lan0:c", NULL, memory, &bad, text, sizeof text) == RINGWAY_E_MEMORY);
    CHECK(strstr(text, "no room"));
    ringway_area *area, *other;
    CHECK(ringway_area_take(memory, 64 << 10, &area) == 1 && ringway_area_take(memory, 64 << 20, &other) == 0 && other == NULL);
    CHECK(ringway_area_take_at(memory, 0, 64, &other) == 0 && ringway_area_take_at(memory, SIZE_MAX, 64, &other) == 0);
    CHECK(ringway_area_take(NULL, 64, &other) == RINGWAY_E_ARGUMENT && ringway_area_take(memory, 64, NULL) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_area_data(NULL) == NULL);
    ringway_memory_free(memory);
    ringway_memory_free(NULL);
    /* A short frame, and one of several slots. */
    uint8_t *data = ringway_area_data(area), got[9000];
    make(data + 128, 61, 1, 3);
    make(data + 4096, 9000, 1, 4);
    CHECK(ringway_push_from(a, 0, area, 128, 61) == 1 && ringway_push_from(a, 0, area, 4096, 9000) == 1);
    CHECK(ringway_push_from(a, 0, area, 129, 60) == RINGWAY_E_ARGUMENT && ringway_push_from(a, 0, area, 65536, 60) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_push_from(a, 0, area, 64, SIZE_MAX) == RINGWAY_E_ARGUMENT && ringway_push_from(a, 0, NULL, 0, 60) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_push_from(a, 1, area, 0, 60) == RINGWAY_E_ARGUMENT && ringway_push_from(b, 0, area, 0, 60) == RINGWAY_E_ARGUMENT);
    /* Then one from a buffer of the port's own, by each way. */
    make(got, 60, 1, 5);
    CHECK(ringway_push(a, 0, got, 60) == 1);
    ringway_slot slot;
    CHECK(ringway_reserve(a, 0, &slot, 1) == 1);
    make(slot.data, 60, 1, 6);
    slot.length = 60;
    CHECK(ringway_commit(a, 0, &slot, 1) == 0);
    ringway_run run;
    CHECK(ringway_reserve_run(a, 0, &run, 1) == 1);
    make(ringway_run_data(&run, 0), 60, 1, 7);
    ringway_run_set(&run, 0, 60, 0);
    CHECK(ringway_commit_run(a, 0, 1) == 0 && ringway_flush(a) == 0);
    size_t length;
    const size_t lengths[] = {61, 9000, 60, 60, 60};
    for (uint8_t number = 0; number < 5; number++) {
        while (ringway_pop(b, 0, got, sizeof got, &length) == 0)
            CHECK(ringway_wait_rx(b, PATIENCE) == 1);
        CHECK(is(got, length, lengths[number], 1, 3 + number));
    }
    /* Received, by each way. */
    for (uint8_t number = 0; number < 2; number++) {
        make(got, 300, 2, number);
        CHECK(ringway_push(b, 0, got, 300) == 1 && ringway_flush(b) == 0);
    }
    await(a, 0, 2);
    CHECK(ringway_peek(a, 0, &slot, 1) == 1 && is(slot.data, slot.length, 300, 2, 0) && ringway_release(a, 0, 1) == 0);
    CHECK(ringway_peek_run(a, 0, &run, 1) == 1);
    CHECK(is(ringway_run_data(&run, 0), ringway_run_length(&run, 0), 300, 2, 1) && ringway_release(a, 0, 1) == 0);
    ringway_detach(a);
    ringway_area_free(area);
    ringway_area_free(NULL);
    ringway_detach(b);
}

/* Says "waiting", and waits for frames until the switch goes. */
static void ended(void) {
    ringway_port *a = attach("lan0:a", NULL);
    char text[200] = "";
    CHECK(ringway_ended(a, text, sizeof text) == 0);
    puts("waiting");
    fflush(stdout);
    CHECK(ringway_wait_rx(a, -1) == RINGWAY_E_ENDED);
    CHECK(ringway_ended(a, text, sizeof text) == 1 && text[0] != 0);
    puts(text);
    char again[200] = "";
    CHECK(ringway_ended(a, again, sizeof again) == 1 && strcmp(text, again) == 0);
    /* There is nothing left to be woken for, and nothing hangs. */
    CHECK(ringway_wait_rx(a, PATIENCE) == RINGWAY_E_ENDED);
    uint8_t frame[60];
    make(frame, sizeof frame, 1, 0);
    CHECK(ringway_push(a, 0, frame, sizeof frame) == 1 && ringway_flush(a) == 0);
    ringway_detach(a);
}

static int run(const char *name) {
    static const struct {
        const char *name;
        void (*run)(void);
    } scenes[] = {{"copy", by_copy}, {"batches", batches}, {"runs", runs}, {"pieces", pieces}, {"event-loop", event_loop}, {"offloads", offloads},
                  {"threads", threads}, {"errors", errors}, {"interrupted", interrupted}, {"own-memory", own_memory}, {"ended", ended}};
    for (size_t number = 0; number < sizeof scenes / sizeof *scenes; number++)
        if (strcmp(name, scenes[number].name) == 0) {
            scenes[number].run();
            return 0;
        }
    fprintf(stderr, "no scene %s\n", name);
    return 2;
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    char *sockets, *scenes, *scene = strtok_r(arguments[2], ",", &scenes);
    attach_socket = strtok_r(arguments[1], ",", &sockets);
    for (int status = 0; scene != NULL; scene = strtok_r(NULL, ",", &scenes), attach_socket = strtok_r(NULL, ",", &sockets))
        if ((status = run(scene)) != 0)
            return status;
    return 0;
}
