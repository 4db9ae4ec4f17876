/* The frames of the programs: EtherType 0x88b5, from 02:00:00:00:00:FROM, to one address or to all. */
#ifndef FRAME_H
#define FRAME_H

#include <stddef.h>
#include <string.h>

enum { FRAME_MOST = 2048 };

static inline void frame_make(char *frame, size_t size, int to, int from) {
    memset(frame, 0, size);
    memset(frame, to ? 0 : 0xff, 6);
    if (to) {
        frame[0] = 2;
        frame[5] = (char)to;
    }
    frame[6] = 2;
    frame[11] = (char)from;
    frame[12] = (char)0x88;
    frame[13] = (char)0xb5;
}

static inline int frame_is_from(const char *frame, int from) {
    return frame[6] == 2 && frame[11] == from && frame[12] == (char)0x88 && frame[13] == (char)0xb5;
}

#endif
