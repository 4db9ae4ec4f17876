/* Windows of a program that `ringway bench` drives: a line of standard input is a number of microseconds, and the answer is a line with the
 * frames that were delivered in that time, and the nanoseconds that it took. */
#ifndef TURNS_H
#define TURNS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    /* Turns between two readings of the clock. */
    TURNS_PER_LOOK = 16,
    /* Frames before the first window: more than all rings have slots. The kernel gives a buffer its memory when it is used for the first
     * time, which takes longer than to move a frame. */
    FRAMES_BEFORE = 65536,
    /* Nanoseconds: a busy machine has to do with fewer frames. */
    LONGEST_BEFORE = 1000000000,
    PIECE_BEFORE = 1000000,
};

static inline uint64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Runs `window` for each line, and `before` frames before the first one: it works until `end` and returns the frames that were delivered. */
static inline void serve(uint64_t (*window)(uint64_t end), uint64_t before) {
    char line[64];
    uint64_t latest = clock_ns() + LONGEST_BEFORE;
    for (uint64_t done = 0; done < before && clock_ns() < latest;)
        done += window(clock_ns() + PIECE_BEFORE);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        uint64_t start = clock_ns(), frames = window(start + strtoull(line, NULL, 10) * 1000);
        printf("%llu %llu\n", (unsigned long long)frames, (unsigned long long)(clock_ns() - start));
        fflush(stdout);
    }
}

#endif
