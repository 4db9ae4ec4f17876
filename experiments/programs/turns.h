/* Windows of a program that `ringway bench` drives: a line of standard input is a number of microseconds, and the answer is a line with the
 * frames that were delivered in that time, and the nanoseconds that it took. */
#ifndef TURNS_H
#define TURNS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Turns between two readings of the clock. */
enum { TURNS_PER_LOOK = 16 };

static inline uint64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Runs `window` for each line: it works until `end` and returns the frames that were delivered. */
static inline void serve(uint64_t (*window)(uint64_t end)) {
    char line[64];
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        uint64_t start = clock_ns(), frames = window(start + strtoull(line, NULL, 10) * 1000);
        printf("%llu %llu\n", (unsigned long long)frames, (unsigned long long)(clock_ns() - start));
        fflush(stdout);
    }
}

#endif
