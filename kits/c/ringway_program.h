/* Forwarding programs of Ringway, in C: the function of a switch that decides where frames go.
 *
 * A program includes this header once, says how much it reads of each frame, and defines two functions:
 *
 *     #include "ringway_program.h"
 *
 *     RINGWAY_PROGRAM(16, 256)            // 16 bytes of each frame, at most 256 frames in a batch
 *
 *     RINGWAY_EXPORT(ringway_start)
 *     int32_t ringway_start(void) {
 *         ringway_begin();
 *         return 0;                       // or another number, with the reason as a line of the log
 *     }
 *
 *     RINGWAY_EXPORT(ringway_frames)
 *     void ringway_frames(uint32_t count, uint32_t port) {
 *         for (uint32_t i = 0; i < count; i++)
 *             ringway_verdicts[i] = RINGWAY_FLOOD;
 *     }
 *
 * It is built by clang and lld, without a C library:
 *
 *     clang --target=wasm32 -O3 -mbulk-memory -nostdlib -Wl,--no-entry -o program.wasm program.c
 *
 * It may also define, each behind RINGWAY_EXPORT(name):
 *
 *     void    ringway_ports(void);             before the first batch, and when the ports of the switch have changed
 *     void    ringway_timer(void);             the time of ringway_timer_set has come
 *     int32_t ringway_tell(uint32_t length);   a message of the administrator, by ringway_message; 0: understood
 *     void    ringway_save(void);              another program takes over: give it the state by ringway_state_save
 *     int32_t ringway_restore(uint32_t length);   after ringway_start: the state of the program before, by ringway_state_restore
 *
 * The interface is described in docs/guide/forwarding-programs.md. Ringway calls a program from one thread at a time. Names and texts are
 * bytes with a length; RINGWAY_TEXT("text") gives both.
 */
#ifndef RINGWAY_PROGRAM_H
#define RINGWAY_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef __wasm32__
#error "a forwarding program is built for WebAssembly: clang --target=wasm32"
#endif

#define RINGWAY_EXPORT(name) __attribute__((export_name(#name)))
#define RINGWAY_IMPORT(name) __attribute__((import_module("ringway"), import_name(name)))
#define RINGWAY_TEXT(text) (text), (uint32_t)(sizeof(text) - 1)

/* ---- Frames ---------------------------------------------------------------------------------------------------------------------- */

/* What Ringway says of a frame. */
struct ringway_frame {
    uint32_t length;    /* bytes of the whole frame, without frame check sequence */
    uint16_t port;      /* that it came from */
    uint16_t vlan;      /* that the switch has put it in, 1 to 4094; 0: the switch has no VLANs */
    uint8_t priority;   /* of its VLAN tag, 0 to 7; 0 without a tag */
    uint8_t offload;    /* left to the receiver: 0 nothing, else 1 (checksum), plus 2 (TCP over IPv4 is to be segmented), 4 (TCP over IPv6),
                           8 (UDP is to be segmented), 16 (UDP is to be fragmented), and 32 if the packet that the receiver segments is in a UDP tunnel */
    uint16_t segment;   /* bytes of payload in each segment; 0 without segmentation */
    uint8_t head_bytes; /* bytes of the head that belong to the frame; those behind are 0 */
    uint8_t reserved[3];
};

/* Verdicts. */
#define RINGWAY_BUILT_IN 0u                         /* where the learning bridge would send it; its source is learned */
#define RINGWAY_PORT(port) (0x10000u + (port))      /* to one port */
#define RINGWAY_FLOOD 0x20000u                      /* to all ports except its own */
#define RINGWAY_PORTS(set) (0x30000u + (set))       /* to the ports of a set except its own */
#define RINGWAY_DROP(reason) (0x40000u + (reason))  /* nowhere; counted under this reason */

/* Defines the arrays that Ringway fills: the first HEAD_BYTES bytes (0 to 128; multiples of 16 cost least) of at most CAPACITY frames
 * (1 to 1024). All verdicts are RINGWAY_BUILT_IN when ringway_frames is called. */
#define RINGWAY_PROGRAM(HEAD_BYTES, CAPACITY)                                                                                  \
    enum { RINGWAY_HEAD_BYTES = (HEAD_BYTES), RINGWAY_CAPACITY = (CAPACITY) };                                                 \
    static struct ringway_frame ringway_frame[CAPACITY];                                                                       \
    static uint32_t ringway_verdicts[CAPACITY];                                                                                \
    static uint8_t ringway_heads[CAPACITY][(HEAD_BYTES) > 0 ? (HEAD_BYTES) : 1];                                               \
    RINGWAY_EXPORT(ringway_interface) int32_t ringway_interface(void) { return 1; }                                            \
    static inline void ringway_begin(void) {                                                                                   \
        ringway_frames_at(ringway_frame, ringway_heads, HEAD_BYTES, ringway_verdicts, CAPACITY);                               \
    }

/* ---- Functions of the switch ----------------------------------------------------------------------------------------------------- */

/* Only ringway_start may call these five. A name has 1 to 48 letters a-z, digits and _, and begins with a letter. ringway_begin calls the
 * first. */
RINGWAY_IMPORT("frames_at")
void ringway_frames_at(struct ringway_frame *frames, void *heads, uint32_t head_bytes, uint32_t *verdicts, uint32_t capacity);
RINGWAY_IMPORT("drop_reason") uint32_t ringway_drop_reason(const char *name, uint32_t length); /* at most 32 */
RINGWAY_IMPORT("counter") uint32_t ringway_counter(const char *name, uint32_t length);         /* at most 64 */
RINGWAY_IMPORT("gauge") uint32_t ringway_gauge(const char *name, uint32_t length);

RINGWAY_IMPORT("counter_add") void ringway_counter_add(uint32_t counter, uint64_t value);
RINGWAY_IMPORT("gauge_set") void ringway_gauge_set(uint32_t gauge, int64_t value);

/* Copy the first `capacity` bytes of a text and return its whole length. */
RINGWAY_IMPORT("config") uint32_t ringway_config(char *to, uint32_t capacity);
RINGWAY_IMPORT("message") uint32_t ringway_message(char *to, uint32_t capacity); /* within ringway_tell */

RINGWAY_IMPORT("save") void ringway_state_save(const void *from, uint32_t length);                        /* within ringway_save */
RINGWAY_IMPORT("restore") uint32_t ringway_state_restore(uint32_t offset, void *to, uint32_t capacity);   /* within ringway_restore */

RINGWAY_IMPORT("instance") uint32_t ringway_instance(void);   /* from 0; each poller has one */
RINGWAY_IMPORT("instances") uint32_t ringway_instances(void); /* how many there are */

/* Ports by number, 0 to 65535; -1: there is none. */
RINGWAY_IMPORT("port_by_name") int32_t ringway_port_by_name(const char *name, uint32_t length);
RINGWAY_IMPORT("port_name") int32_t ringway_port_name(uint32_t port, char *to, uint32_t capacity); /* the name's whole length */
RINGWAY_IMPORT("ports") uint32_t ringway_port_list(uint16_t *to, uint32_t capacity);               /* how many there are */
RINGWAY_IMPORT("port_set") void ringway_port_set(uint32_t set, const uint16_t *ports, uint32_t count); /* set: 0 to 63 */

/* Addresses of 6 bytes, in the VLAN of a frame. */
RINGWAY_IMPORT("mac_learn") int32_t ringway_mac_learn(const uint8_t *address, uint32_t vlan);   /* 1: the table has it at the batch's port */
RINGWAY_IMPORT("mac_lookup") int32_t ringway_mac_lookup(const uint8_t *address, uint32_t vlan); /* its port; -1: none */

RINGWAY_IMPORT("now_ns") uint64_t ringway_now_ns(void);
RINGWAY_IMPORT("random") uint64_t ringway_random(void); /* not for secrets */
RINGWAY_IMPORT("timer_set") void ringway_timer_set(uint64_t ns);
RINGWAY_IMPORT("log") void ringway_log(const char *text, uint32_t length); /* at most 256 bytes */

/* The map that all instances share: keys of 1 to 64 bytes, values of 0 to 256. A call takes a lock. */
RINGWAY_IMPORT("map_get") int32_t ringway_map_get(const void *key, uint32_t key_length, void *to, uint32_t capacity); /* length; -1: none */
RINGWAY_IMPORT("map_set") int32_t ringway_map_set(const void *key, uint32_t key_length, const void *value, uint32_t length); /* 0: full */
RINGWAY_IMPORT("map_remove") int32_t ringway_map_remove(const void *key, uint32_t key_length);

/* ---- What is in a frame ---------------------------------------------------------------------------------------------------------- */

enum { RINGWAY_IPV4 = 0x0800, RINGWAY_ARP = 0x0806, RINGWAY_IPV6 = 0x86dd };
enum { RINGWAY_ICMP = 1, RINGWAY_TCP = 6, RINGWAY_UDP = 17, RINGWAY_ICMPV6 = 58 };

/* The flow that a frame of IPv4 or IPv6 belongs to. */
struct ringway_flow {
    uint8_t source[16], destination[16]; /* of IPv4: ::ffff:a.b.c.d */
    uint16_t source_port, destination_port; /* 0 without ports, and in fragments but the first */
    uint8_t protocol;
    bool is_fragment, is_later_fragment;
    uint32_t transport; /* where the header of the protocol begins in the frame */
};

static inline uint16_t ringway_u16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }

/* The EtherType behind at most two VLAN tags; 0: not within the first `length` bytes. *behind: where what follows begins. */
static inline uint16_t ringway_ether_type(const uint8_t *frame, uint32_t length, uint32_t *behind) {
    uint32_t at = 12;
    for (int tags = 0; at + 2 <= length; tags++, at += 4) {
        uint16_t kind = ringway_u16(frame + at);
        *behind = at + 2;
        if (tags == 2 || (kind != 0x8100 && kind != 0x88a8))
            return kind;
    }
    return 0;
}

/* Compares bytes in words: fast if the length is a constant. */
static inline bool ringway_same(const void *a, const void *b, uint32_t length) {
    const uint8_t *left = a, *right = b;
    for (; length >= 8; length -= 8, left += 8, right += 8) {
        uint64_t l, r;
        __builtin_memcpy(&l, left, 8);
        __builtin_memcpy(&r, right, 8);
        if (l != r)
            return false;
    }
    for (; length > 0; length--)
        if (*left++ != *right++)
            return false;
    return true;
}

static inline void ringway_copy(uint8_t *to, const uint8_t *from, uint32_t length) {
    for (uint32_t i = 0; i < length; i++)
        to[i] = from[i];
}

/* Reads the flow from the first `length` bytes of a frame. False if it is no IP, or if a header is damaged or not within these bytes. */
static inline bool ringway_flow(const uint8_t *frame, uint32_t length, struct ringway_flow *flow) {
    uint32_t at = 0;
    uint16_t kind = ringway_ether_type(frame, length, &at);
    *flow = (struct ringway_flow){0};
    if (kind == RINGWAY_IPV4) {
        uint32_t header = at + 20 <= length ? (frame[at] & 15u) * 4 : 0;
        if (header < 20 || frame[at] >> 4 != 4)
            return false;
        uint16_t fragment = ringway_u16(frame + at + 6) & 0x3fff;
        flow->is_fragment = fragment != 0;
        flow->is_later_fragment = (fragment & 0x1fff) != 0;
        flow->protocol = frame[at + 9];
        flow->source[10] = flow->source[11] = flow->destination[10] = flow->destination[11] = 0xff;
        ringway_copy(flow->source + 12, frame + at + 12, 4);
        ringway_copy(flow->destination + 12, frame + at + 16, 4);
        flow->transport = at + header;
    } else if (kind == RINGWAY_IPV6) {
        if (at + 40 > length || frame[at] >> 4 != 6)
            return false;
        flow->protocol = frame[at + 6];
        ringway_copy(flow->source, frame + at + 8, 16);
        ringway_copy(flow->destination, frame + at + 24, 16);
        flow->transport = at + 40;
        for (int extensions = 0;; extensions++) {
            uint8_t next = flow->protocol;
            bool is_fragment = next == 44, is_authentication = next == 51;
            bool is_options = next == 0 || next == 43 || next == 60 || next == 135 || next == 139 || next == 140;
            if (!is_fragment && !is_authentication && !is_options)
                break;
            const uint8_t *extension = frame + flow->transport;
            if (extensions == 8 || flow->transport + 4 > length)
                return false;
            flow->protocol = extension[0];
            flow->transport += 8 + (is_fragment ? 0 : extension[1] * (is_options ? 8u : 4u));
            if (is_fragment) {
                uint16_t fragment = ringway_u16(extension + 2);
                flow->is_fragment = flow->is_fragment || fragment >> 3 != 0 || (fragment & 1) != 0;
                flow->is_later_fragment = fragment >> 3 != 0;
                if (flow->is_later_fragment)
                    return true;
            }
        }
    } else {
        return false;
    }
    uint8_t protocol = flow->protocol;
    bool has_ports = protocol == RINGWAY_TCP || protocol == RINGWAY_UDP || protocol == 33 || protocol == 132 || protocol == 136;
    if (has_ports && !flow->is_later_fragment) {
        if (flow->transport + 4 > length)
            return false;
        flow->source_port = ringway_u16(frame + flow->transport);
        flow->destination_port = ringway_u16(frame + flow->transport + 2);
    }
    return true;
}

/* A number that depends on all bytes. With a random seed, a sender cannot easily choose bytes that have the same. */
static inline uint64_t ringway_hash(const void *bytes, uint32_t length, uint64_t seed) {
    const uint8_t *at = bytes;
    uint64_t sum = seed ^ length;
    while (length > 0) {
        uint64_t word = 0;
        uint32_t part = length < 8 ? length : 8;
        __builtin_memcpy(&word, at, part);
        sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
        sum ^= sum >> 29;
        at += part;
        length -= part;
    }
    sum *= 0xbf58476d1ce4e5b9u;
    return sum ^ sum >> 32;
}

/* ---- What the compiler calls ----------------------------------------------------------------------------------------------------- */

/* There is no C library, and compilers call these functions for assignments and loops. With -mbulk-memory, the first three are
 * instructions. */
#define RINGWAY_LIBRARY(...) __attribute__((weak, no_builtin(__VA_ARGS__)))

RINGWAY_LIBRARY("memcpy", "memmove") void *memmove(void *to, const void *from, size_t length) {
#ifdef __wasm_bulk_memory__
    return __builtin_memmove(to, from, length);
#else
    uint8_t *out = to;
    const uint8_t *in = from;
    if (out < in)
        for (size_t i = 0; i < length; i++)
            out[i] = in[i];
    else
        for (size_t i = length; i > 0; i--)
            out[i - 1] = in[i - 1];
    return to;
#endif
}

RINGWAY_LIBRARY("memcpy", "memmove") void *memcpy(void *to, const void *from, size_t length) {
    return memmove(to, from, length);
}

RINGWAY_LIBRARY("memset") void *memset(void *to, int value, size_t length) {
#ifdef __wasm_bulk_memory__
    return __builtin_memset(to, value, length);
#else
    for (size_t i = 0; i < length; i++)
        ((uint8_t *)to)[i] = (uint8_t)value;
    return to;
#endif
}

RINGWAY_LIBRARY("memcmp", "bcmp") int memcmp(const void *a, const void *b, size_t length) {
    const uint8_t *left = a, *right = b;
    for (size_t i = 0; i < length; i++)
        if (left[i] != right[i])
            return left[i] < right[i] ? -1 : 1;
    return 0;
}

#endif
