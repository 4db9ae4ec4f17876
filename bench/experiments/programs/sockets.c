/* Messages by the kernel's TCP or UDP, one client of a server at a time:
 *     sockets serve PORT
 *     sockets tcp|udp ask|send ADDRESS PORT SIZE MILLISECONDS wait|spin wait|spin
 * `ask` prints the median round trip in nanoseconds; `send` prints the messages that the server has received, and the nanoseconds from
 * the first one to the last one. The client, and the server, try again at once (`spin`) instead of sleeping (`wait`). */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "turns.h"

enum { MOST = 65536, MOST_TRIPS = 1 << 20, LOST_MS = 200 };

/* What a client asks a server for, by TCP. */
struct wish {
    uint32_t size;
    uint8_t is_udp, is_sink, spins;
};

/* What a sink has received. */
struct tally {
    uint64_t messages, first, last;
};

static char message[MOST];

static void die(const char *what) {
    perror(what);
    exit(1);
}

static int until_ready(int fd, int spins, int ms) {
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    return spins ? 1 : poll(&ready, 1, ms);
}

/* Receives one datagram, or all of a message of a stream. Returns 0 at the end of a stream, and -1 when nothing has come in time. */
static int take(int fd, int is_stream, uint32_t size, int spins, int ms) {
    uint32_t have = 0;
    uint64_t latest = clock_ns() + (uint64_t)ms * 1000000;
    while (have < size) {
        ssize_t got = recv(fd, message + have, is_stream ? size - have : MOST, MSG_DONTWAIT);
        if (got == 0 && is_stream)
            return 0;
        if (got < 0 && errno != EAGAIN)
            return errno == ECONNREFUSED ? -1 : 0;
        if (got >= 0 && !is_stream)
            return 1;
        have += got > 0 ? got : 0;
        if (got < 0 && (until_ready(fd, spins, ms) == 0 || (ms > 0 && spins && clock_ns() > latest)))
            return -1;
    }
    return 1;
}

static void give(int fd, const void *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t sent = send(fd, (const char *)bytes + done, size - done, MSG_NOSIGNAL);
        if (sent < 0 && errno != ENOBUFS && errno != EAGAIN)
            return;
        done += sent > 0 ? sent : 0;
    }
}

static void count(struct tally *tally, uint64_t messages) {
    tally->last = clock_ns();
    tally->first = tally->messages ? tally->first : tally->last;
    tally->messages += messages;
}

static void serve_datagrams(int client, int udp, struct wish wish) {
    struct pollfd ready[2] = {{.fd = client, .events = POLLIN}, {.fd = udp, .events = POLLIN}};
    struct tally tally = {0};
    int is_over = 0;
    while (!is_over) {
        if (poll(ready, 2, wish.spins ? 0 : -1) < 0)
            die("poll");
        is_over = ready[0].revents != 0;
        for (;;) {
            struct sockaddr_in from;
            socklen_t len = sizeof(from);
            ssize_t got = recvfrom(udp, message, MOST, MSG_DONTWAIT, (struct sockaddr *)&from, &len);
            if (got < 0)
                break;
            if (wish.is_sink)
                count(&tally, 1);
            else
                sendto(udp, message, got, 0, (struct sockaddr *)&from, len);
        }
    }
    give(client, &tally, sizeof(tally));
}

static void serve_stream(int client, struct wish wish) {
    struct tally tally = {0};
    uint64_t bytes = 0;
    if (!wish.is_sink) {
        while (take(client, 1, wish.size, wish.spins, -1) > 0)
            give(client, message, wish.size);
        return;
    }
    for (ssize_t got; (got = recv(client, message, MOST, 0)) > 0;) {
        count(&tally, (bytes + got) / wish.size - bytes / wish.size);
        bytes += got;
    }
    give(client, &tally, sizeof(tally));
}

static int bound(int type, const char *port) {
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    int fd = socket(AF_INET, type, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (fd < 0 || bind(fd, (struct sockaddr *)&own, sizeof(own)) < 0)
        die("bind");
    return fd;
}

static int connected(int type, const char *address, const char *port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    int fd = socket(AF_INET, type, 0), on = 1;
    if (fd < 0 || inet_pton(AF_INET, address, &to.sin_addr) != 1 || connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
        die("connect");
    if (type == SOCK_STREAM)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

static void serve_clients(const char *port) {
    int listener = bound(SOCK_STREAM, port), udp = bound(SOCK_DGRAM, port), on = 1;
    if (listen(listener, 8) < 0)
        die("listen");
    for (;;) {
        struct wish wish;
        int client = accept(listener, NULL, NULL);
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        if (recv(client, &wish, sizeof(wish), MSG_WAITALL) == sizeof(wish) && wish.size > 0 && wish.size <= MOST) {
            give(client, "", 1);
            if (wish.is_udp)
                serve_datagrams(client, udp, wish);
            else
                serve_stream(client, wish);
        }
        close(client);
    }
}

static int compare(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

static void ask(int fd, struct wish wish, int spins, uint64_t end) {
    static uint64_t trips[MOST_TRIPS];
    size_t count = 0;
    for (uint64_t sent; count < MOST_TRIPS && (sent = clock_ns()) < end;) {
        give(fd, message, wish.size);
        if (take(fd, !wish.is_udp, wish.size, spins, LOST_MS) > 0)
            trips[count++] = clock_ns() - sent;
        else if (!wish.is_udp)
            break;
    }
    if (count == 0)
        die("no answer");
    qsort(trips, count, sizeof(trips[0]), compare);
    printf("%llu\n", (unsigned long long)trips[count / 2]);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "serve"))
        serve_clients(argv[2]);
    if (argc != 9)
        return 2;
    struct wish wish = {.size = atoi(argv[5]), .is_udp = !strcmp(argv[1], "udp"), .is_sink = !strcmp(argv[2], "send"),
                        .spins = !strcmp(argv[8], "spin")};
    int control = connected(SOCK_STREAM, argv[3], argv[4]);
    int fd = wish.is_udp ? connected(SOCK_DGRAM, argv[3], argv[4]) : control;
    give(control, &wish, sizeof(wish));
    if (recv(control, message, 1, 0) != 1)
        die("no server");
    uint64_t end = clock_ns() + strtoull(argv[6], NULL, 10) * 1000000;
    if (!wish.is_sink) {
        ask(fd, wish, !strcmp(argv[7], "spin"), end);
        return 0;
    }
    while (clock_ns() < end)
        for (int i = 0; i < TURNS_PER_LOOK; i++)
            give(fd, message, wish.size);
    struct tally tally;
    shutdown(control, SHUT_WR);
    if (recv(control, &tally, sizeof(tally), MSG_WAITALL) != sizeof(tally))
        die("no tally");
    printf("%llu %llu\n", (unsigned long long)tally.messages, (unsigned long long)(tally.last - tally.first));
    return 0;
}
