/* A sender and a receiver, in one thread or in two that sleep in poll:
 *     pair netmap|packet SENDER RECEIVER SIZE SEND_BATCH RECEIVE_BATCH once|each one|two
 * `once` fills each buffer once, as pkt-gen does; `each` writes every frame. Two threads share what the program may run on. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>

#include "netmap_end.h"
#include "packet_end.h"
#include "turns.h"

enum { SENDER = 1, RECEIVER = 2 };
/* Longest sleep of a thread, so that it sees the end of a window. */
enum { SLEEP_MS = 5 };

static struct netmap_end netmap_sender, netmap_receiver;
static struct packet_end packet_sender, packet_receiver;
static int is_netmap;
static uint64_t window_end;

static unsigned send_some(void) {
    return is_netmap ? netmap_send(&netmap_sender) : packet_send(&packet_sender);
}

static unsigned receive_some(void) {
    return is_netmap ? netmap_receive(&netmap_receiver) : packet_receive(&packet_receiver);
}

static uint64_t by_turns(uint64_t end) {
    uint64_t frames = 0;
    do {
        for (int i = 0; i < TURNS_PER_LOOK; i++) {
            send_some();
            frames += receive_some();
        }
    } while (clock_ns() < end);
    return frames;
}

static void *sends(void *unused) {
    (void)unused;
    struct pollfd fd = {.fd = is_netmap ? netmap_sender.port.fd : packet_sender.fd, .events = POLLOUT};
    while (clock_ns() < window_end) {
        CHECK(poll(&fd, 1, SLEEP_MS) >= 0);
        /* A poll of a netmap descriptor publishes what was filled in before. */
        if (is_netmap) {
            netmap_fill(&netmap_sender, netmap_sender.batch);
        } else if (packet_send(&packet_sender) == 0) {
            sched_yield();
        }
    }
    return NULL;
}

static uint64_t by_two_threads(uint64_t end) {
    pthread_t sender;
    uint64_t frames = 0;
    window_end = end;
    CHECK(pthread_create(&sender, NULL, sends, NULL) == 0);
    struct pollfd fd = {.fd = is_netmap ? netmap_receiver.port.fd : packet_receiver.fd, .events = POLLIN};
    while (clock_ns() < end) {
        CHECK(poll(&fd, 1, SLEEP_MS) >= 0);
        frames += is_netmap ? netmap_take(&netmap_receiver, netmap_receiver.batch) : packet_receive(&packet_receiver);
    }
    CHECK(pthread_join(sender, NULL) == 0);
    return frames;
}

int main(int count, char **words) {
    if (count != 9)
        FAIL("pair netmap|packet SENDER RECEIVER SIZE SEND_BATCH RECEIVE_BATCH once|each one|two");
    unsigned size = atoi(words[4]), send_batch = atoi(words[5]), receive_batch = atoi(words[6]);
    is_netmap = strcmp(words[1], "netmap") == 0;
    double end = now() + PATIENCE;
    if (is_netmap) {
        netmap_open(&netmap_sender, words[2]);
        netmap_open(&netmap_receiver, words[3]);
        netmap_aim(&netmap_sender, RECEIVER, SENDER, size, strcmp(words[7], "each") == 0);
        netmap_sender.batch = send_batch;
        netmap_receiver.batch = receive_batch;
        netmap_introduce(&netmap_receiver, RECEIVER);
        while (!netmap_has_heard(&netmap_sender, RECEIVER))
            CHECK(now() < end);
    } else {
        packet_open(&packet_sender, words[2]);
        packet_open(&packet_receiver, words[3]);
        packet_aim(&packet_sender, RECEIVER, SENDER, size);
        packet_sender.batch = send_batch;
        packet_receiver.batch = receive_batch;
    }
    serve(strcmp(words[8], "two") == 0 ? by_two_threads : by_turns, FRAMES_BEFORE);
}
