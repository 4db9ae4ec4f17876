/* cost SOCKET FRAMES WAY: what the library costs a program, in instructions of `work` under callgrind, or in frames per second, which it
 * prints after a sum of what it has received. `cost.rs` does the same work by the Rust library; `cost.sh` runs both and compares.
 *
 * Port a sends frames of 60 bytes to port b in batches, in one thread; `work` has the sending and the receiving of one batch, not the
 * waiting. WAY is "runs" (ringway_reserve_run() and ringway_peek_run()), "slots" (ringway_reserve() and ringway_peek()) or "copies" (ringway_push_batch() and ringway_drain()).
 */
#include <ringway.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCH 256
#define LENGTH 60
/* How many slots ahead the beginning of a buffer is fetched, as the Rust library does it. */
#define AHEAD 8

static ringway_port *a, *b;
static uint8_t frame[LENGTH];
static uint64_t sum;

static ringway_port *attach(const char *socket, const char *name) {
    ringway_port *port;
    char text[256];
    if (ringway_attach(socket, name, NULL, &port, text, sizeof text) != 0) {
        fprintf(stderr, "%s\n", text);
        exit(1);
    }
    return port;
}

/* What a program does with a frame: here it reads one word. */
static inline void see(const uint8_t *data, size_t length) {
    uint64_t word;
    memcpy(&word, data + 16, sizeof word);
    sum += word + length;
}

static void see_frame(void *context, const uint8_t *data, size_t length) {
    (void)context;
    see(data, length);
}

__attribute__((noinline)) void work_send_slots(void) {
    ringway_slot slots[BATCH];
    /* Of its own, so that the compiler sees that no buffer is the frame. */
    uint8_t own[LENGTH];
    memcpy(own, frame, LENGTH);
    int count = ringway_reserve(a, 0, slots, BATCH);
    for (int i = 0; i < count; i++) {
        memcpy(slots[i].data, own, LENGTH);
        slots[i].length = LENGTH;
    }
    ringway_commit(a, 0, slots, (size_t)count);
    ringway_flush(a);
}

__attribute__((noinline)) int work_receive_slots(void) {
    ringway_slot slots[BATCH];
    int count = ringway_peek(b, 0, slots, BATCH);
    for (int i = 0; i < count; i++)
        see(slots[i].data, slots[i].length);
    ringway_release(b, 0, (size_t)count);
    return count;
}

__attribute__((noinline)) void work_send_runs(void) {
    ringway_run run;
    uint8_t own[LENGTH];
    memcpy(own, frame, LENGTH);
    int left = BATCH, count;
    while (left > 0 && (count = ringway_reserve_run(a, 0, &run, (size_t)left)) > 0) {
        for (uint32_t i = 0; i < run.count; i++) {
            if (i + AHEAD < run.count)
                ringway_run_prefetch(&run, i + AHEAD, 1);
            memcpy(ringway_run_data(&run, i), own, LENGTH);
            ringway_run_set(&run, i, LENGTH, 0);
        }
        ringway_commit_run(a, 0, (size_t)count);
        left -= count;
    }
    ringway_flush(a);
}

__attribute__((noinline)) int work_receive_runs(void) {
    ringway_run run;
    int got = 0, count;
    while (got < BATCH && (count = ringway_peek_run(b, 0, &run, (size_t)(BATCH - got))) > 0) {
        for (uint32_t i = 0; i < run.count; i++) {
            if (i + AHEAD < run.count)
                ringway_run_prefetch(&run, i + AHEAD, 0);
            see(ringway_run_data(&run, i), ringway_run_length(&run, i));
        }
        ringway_release(b, 0, (size_t)count);
        got += count;
    }
    return got;
}

__attribute__((noinline)) void work_send_copies(void) {
    static ringway_frame frames[BATCH];
    for (int i = 0; i < BATCH; i++) {
        frames[i].data = frame;
        frames[i].length = LENGTH;
    }
    ringway_push_batch(a, 0, frames, BATCH);
    ringway_flush(a);
}

__attribute__((noinline)) int work_receive_copies(void) {
    return ringway_drain(b, 0, BATCH, see_frame, NULL);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int count, char **arguments) {
    if (count != 4) {
        fprintf(stderr, "usage: cost SOCKET FRAMES WAY\n");
        return 2;
    }
    int runs = strcmp(arguments[3], "runs") == 0, slots = strcmp(arguments[3], "slots") == 0;
    a = attach(arguments[1], "lan0:a");
    b = attach(arguments[1], "lan0:b");
    memset(frame, 0xff, 6);
    frame[6] = 2;
    long batches = atol(arguments[2]) / BATCH;
    double begun = now();
    for (long batch = 0; batch < batches; batch++) {
        while (ringway_room(a, 0) < BATCH)
            ringway_wait_tx(a, -1);
        if (runs)
            work_send_runs();
        else if (slots)
            work_send_slots();
        else
            work_send_copies();
        while (ringway_available(b, 0) < BATCH)
            ringway_wait_rx(b, 1000000);
        int got = runs ? work_receive_runs() : slots ? work_receive_slots() : work_receive_copies();
        if (got != BATCH)
            return 1;
    }
    printf("%llu %.0f\n", (unsigned long long)sum, batches * BATCH / (now() - begun));
    return 0;
}
