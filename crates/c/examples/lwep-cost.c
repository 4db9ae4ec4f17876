/* lwep-cost SOCKET MESSAGES SIZE WAY: what LWEP costs a program in C, in instructions of `work` under callgrind. `lwep_cost.rs` does the
 * same work by the Rust library; `cost.sh PROFILE messages` runs both and compares.
 *
 * Port a sends messages to port b in batches, in one thread; `work` has the sending and the receiving of one batch, not the waiting. WAY
 * is "batch" (ringway_lwep_send_batch() and ringway_lwep_drain()), "single" (ringway_lwep_send() and ringway_lwep_poll()) or "place"
 * (ringway_lwep_reserve(), ringway_lwep_commit() and ringway_lwep_poll()).
 */
#include <ringway.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 64
#define LONGEST 2048
#define SERVICE 7

static ringway_lwep *a, *b;
static uint32_t connection;
static uint8_t message[LONGEST];
static size_t size;
/* A time that passes by itself makes each run the same. */
static uint64_t now, sum;

static ringway_lwep *attach(const char *socket, const char *name, uint8_t number) {
    ringway_lwep_options options = RINGWAY_LWEP_OPTIONS_INIT;
    ringway_lwep *lwep;
    char text[256];
    options.mac[0] = 2;
    options.mac[5] = number;
    if (ringway_lwep_attach(socket, name, &options, &lwep, text, sizeof text) != 0) {
        fprintf(stderr, "%s\n", text);
        exit(1);
    }
    return lwep;
}

/* What a program does with a message: here it reads one word. Returns the number of messages. */
static inline int see(const ringway_lwep_event *event) {
    uint64_t word;
    if (event->kind != RINGWAY_LWEP_MESSAGE)
        return 0;
    memcpy(&word, event->data, sizeof word);
    sum += word + event->length;
    return 1;
}

static void see_event(void *context, const ringway_lwep_event *event) {
    *(int *)context += see(event);
}

__attribute__((noinline)) int work_send_batch(int count) {
    ringway_frame frames[BATCH];
    for (int i = 0; i < count; i++) {
        frames[i].data = message;
        frames[i].length = size;
    }
    int sent = ringway_lwep_send_batch(a, connection, frames, (size_t)count, now);
    ringway_lwep_flush(a);
    return sent;
}

__attribute__((noinline)) int work_receive_batch(ringway_lwep *lwep) {
    int got = 0;
    ringway_lwep_drain(lwep, now, BATCH, see_event, &got);
    return got;
}

__attribute__((noinline)) int work_send_single(int count) {
    int sent = 0;
    while (sent < count && ringway_lwep_send(a, connection, message, size, now) == 1)
        sent++;
    ringway_lwep_flush(a);
    return sent;
}

__attribute__((noinline)) int work_send_place(int count) {
    int sent = 0;
    ringway_lwep_buffer buffer;
    while (sent < count && ringway_lwep_reserve(a, &buffer) == 1) {
        memcpy(buffer.data, message, size);
        if (ringway_lwep_commit(a, connection, buffer.handle, size, now) != 1) {
            ringway_lwep_discard(a, buffer.handle);
            break;
        }
        sent++;
    }
    ringway_lwep_flush(a);
    return sent;
}

__attribute__((noinline)) int work_receive_single(ringway_lwep *lwep) {
    int got = 0;
    ringway_lwep_event event;
    while (got < BATCH && ringway_lwep_poll(lwep, now, &event) == 1)
        got += see(&event);
    return got;
}

int main(int count, char **arguments) {
    if (count != 5) {
        fprintf(stderr, "usage: lwep-cost SOCKET MESSAGES SIZE WAY\n");
        return 2;
    }
    size = strtoul(arguments[3], NULL, 10);
    int is_batch = strcmp(arguments[4], "batch") == 0, is_place = strcmp(arguments[4], "place") == 0;
    if (size < 8 || size > LONGEST)
        return 2;
    a = attach(arguments[1], "lan0:a", 1);
    b = attach(arguments[1], "lan0:b", 2);
    uint8_t mac[6];
    ringway_lwep_mac(b, mac);
    ringway_lwep_listen(b, SERVICE);
    if (ringway_lwep_connect(a, mac, SERVICE, now, &connection) != 0)
        return 1;
    ringway_lwep_event event;
    /* The handshake. */
    for (int is_connected = 0; !is_connected; ringway_lwep_sleep(b, now, 1000000)) {
        now += 1000;
        while (ringway_lwep_poll(a, now, &event) == 1)
            is_connected |= event.kind == RINGWAY_LWEP_CONNECTED;
        while (ringway_lwep_poll(b, now, &event) == 1)
            ;
    }
    for (long batches = atol(arguments[2]) / BATCH; batches > 0; batches--) {
        now += 1000;
        int sent = 0, got = 0;
        while (got < BATCH) {
            if (sent < BATCH)
                sent += is_batch ? work_send_batch(BATCH - sent) : is_place ? work_send_place(BATCH - sent) : work_send_single(BATCH - sent);
            ringway_lwep_sleep(b, now, 1000000);
            got += is_batch ? work_receive_batch(b) : work_receive_single(b);
            ringway_lwep_sleep(a, now, 1000000);
            is_batch ? work_receive_batch(a) : work_receive_single(a);
        }
    }
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
