/* LWEP between two ports of a running switch, or two interfaces: lwep SOCKET[,SOCKET...] SCENE[,SCENE...] [CLIENT SERVER], a
 * socket for each scene. A mistake is a line on stderr and exit status 1. */
#define _POSIX_C_SOURCE 200809L
#include <poll.h>
#include <ringway.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                                \
    do {                                                                                                                \
        if (!(condition)) {                                                                                             \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);                              \
            exit(1);                                                                                                    \
        }                                                                                                               \
    } while (0)
#define PATIENCE UINT64_C(300000000000)
#define SERVICE 7
#define NOW ringway_lwep_now()

static const char *attach_socket, *client_name = "lan0:client", *server_name = "lan0:server";
static int are_ports = 1;
static ringway_lwep *client, *server;
static uint32_t connection;

static ringway_lwep *attach(const char *name, uint8_t number, uint32_t longest) {
    ringway_lwep_options options = RINGWAY_LWEP_OPTIONS_INIT;
    const uint8_t mac[6] = {2, 0, 0, 0, 0, number}, address[4] = {10, 0, 0, number};
    memcpy(options.mac, mac, sizeof mac);
    if (are_ports)
        memcpy(options.address, address, sizeof address);
    options.long_message = longest;
    options.buffers = 512;
    options.connect_within_ns = PATIENCE;
    ringway_lwep *lwep;
    char text[256] = "";
    if (ringway_lwep_attach(attach_socket, name, &options, &lwep, text, sizeof text) != 0) {
        fprintf(stderr, "%s: %s\n", name, text);
        exit(1);
    }
    return lwep;
}

/* Both ends, and a connection that the client asks for. */
static void begin(uint32_t longest) {
    client = attach(client_name, 1, longest);
    server = attach(server_name, 2, longest);
    uint8_t mac[6];
    CHECK(ringway_lwep_mac(server, mac) == 0 && mac[0] == 2 && mac[5] == 2);
    CHECK(ringway_lwep_listen(server, SERVICE) == 0);
    CHECK(ringway_lwep_connect(client, mac, SERVICE, NOW, &connection) == 0);
}

static void end(void) {
    ringway_lwep_free(client);
    ringway_lwep_free(server);
}

/* Waits until one of both has an event, and returns that one. */
static ringway_lwep *next(ringway_lwep_event *event) {
    uint64_t until = NOW + PATIENCE;
    while (NOW < until) {
        if (ringway_lwep_poll(client, NOW, event) == 1)
            return client;
        if (ringway_lwep_poll(server, NOW, event) == 1)
            return server;
        CHECK(ringway_lwep_sleep(server, NOW, 1000000) == 0);
    }
    CHECK(!"an event comes");
    return NULL;
}

/* Waits for an event of this kind; other kinds but messages are passed over. */
static ringway_lwep_event await(ringway_lwep *lwep, uint32_t kind) {
    ringway_lwep_event event;
    while (!(next(&event) == lwep && event.kind == kind))
        CHECK(event.kind != RINGWAY_LWEP_MESSAGE);
    return event;
}

static void echo(void) {
    begin(0);
    CHECK(ringway_lwep_send(client, connection, "hello", 5, NOW) == 1 && ringway_lwep_flush(client) == 0);
    ringway_lwep_event event = await(server, RINGWAY_LWEP_ACCEPTED);
    CHECK(event.service == SERVICE && event.data == NULL);
    uint32_t there = event.connection;
    event = await(server, RINGWAY_LWEP_MESSAGE);
    CHECK(event.connection == there && event.length == 5 && memcmp(event.data, "hello", 5) == 0);
    /* From where it was received. */
    CHECK(ringway_lwep_send(server, there, event.data, event.length, NOW) == 1);
    event = await(client, RINGWAY_LWEP_MESSAGE);
    CHECK(event.connection == connection && event.length == 5 && memcmp(event.data, "hello", 5) == 0);
    CHECK(ringway_lwep_send(client, connection, NULL, 0, NOW) == 1);
    CHECK(await(server, RINGWAY_LWEP_MESSAGE).length == 0);
    ringway_lwep_status status;
    CHECK(ringway_lwep_get_status(client, connection, &status, sizeof status) == 0);
    CHECK(status.is_open == 1 && status.is_segmented == 0 && status.mac[5] == 2 && status.received == 1);
    CHECK(status.message == (uint64_t)ringway_lwep_message(client));
    ringway_lwep_counters counters;
    CHECK(ringway_lwep_get_counters(client, &counters, sizeof counters) == 1);
    CHECK(counters.messages_sent == 2 && counters.messages_received == 1 && counters.malformed == 0);
    CHECK(ringway_lwep_close(client, connection, NOW) == 0);
    CHECK(ringway_lwep_close(client, connection, NOW) == RINGWAY_E_OVER);
    CHECK(ringway_lwep_send(client, connection, "x", 1, NOW) == RINGWAY_E_OVER);
    CHECK(await(server, RINGWAY_LWEP_FINISHED).connection == there);
    CHECK(ringway_lwep_close(server, there, NOW) == 0);
    event = await(client, RINGWAY_LWEP_ENDED);
    CHECK(event.reason == RINGWAY_LWEP_CLOSED && event.acknowledged == 3 && event.received == 2);
    end();
}

struct heard {
    uint32_t next;
};

static void hear(void *context, const ringway_lwep_event *event) {
    struct heard *heard = context;
    if (event->kind != RINGWAY_LWEP_MESSAGE)
        return;
    uint32_t number;
    CHECK(event->length == 60);
    memcpy(&number, event->data, sizeof number);
    CHECK(number == heard->next);
    heard->next++;
}

/* Many messages under way, in batches and in place. */
static void pipeline(void) {
    begin(0);
    enum { MESSAGES = 20000, BATCH = 16 };
    uint32_t sent = 0;
    struct heard heard = {0};
    uint64_t until = NOW + PATIENCE;
    while (heard.next < MESSAGES) {
        CHECK(NOW < until);
        uint8_t data[BATCH][60] = {{0}};
        ringway_frame messages[BATCH];
        if (sent < MESSAGES) {
            size_t count = MESSAGES - sent < BATCH ? MESSAGES - sent : BATCH;
            for (size_t i = 0; i < count; i++) {
                uint32_t number = sent + (uint32_t)i;
                memcpy(data[i], &number, sizeof number);
                messages[i].data = data[i];
                messages[i].length = sizeof data[i];
            }
            int taken = ringway_lwep_send_batch(client, connection, messages, count, NOW);
            CHECK(taken >= 0 && (size_t)taken <= count);
            sent += (uint32_t)taken;
            ringway_lwep_buffer buffer;
            if (sent < MESSAGES && ringway_lwep_reserve(client, &buffer) == 1) {
                CHECK(buffer.length == (size_t)ringway_lwep_message(client));
                memcpy(buffer.data, &sent, sizeof sent);
                int committed = ringway_lwep_commit(client, connection, buffer.handle, 60, NOW);
                CHECK(committed == 1 || committed == 0);
                if (committed == 0)
                    CHECK(ringway_lwep_discard(client, buffer.handle) == 0);
                sent += (uint32_t)committed;
            }
        }
        ringway_lwep_event event;
        while (ringway_lwep_poll(client, NOW, &event) == 1)
            CHECK(event.kind == RINGWAY_LWEP_CONNECTED || event.kind == RINGWAY_LWEP_ROOM);
        while (ringway_lwep_drain(server, NOW, 64, hear, &heard) == 64)
            ;
    }
    CHECK(sent == MESSAGES && heard.next == MESSAGES);
    end();
}

/* Messages that stay valid: of a connection that was paused, and one from its place. */
static void kept(void) {
    begin(0);
    await(client, RINGWAY_LWEP_CONNECTED);
    uint32_t there = await(server, RINGWAY_LWEP_ACCEPTED).connection;
    CHECK(ringway_lwep_pause(server, there) == 0);
    for (uint8_t number = 0; number < 5; number++)
        CHECK(ringway_lwep_send(client, connection, &number, 1, NOW) == 1);
    ringway_lwep_event event;
    ringway_lwep_status status = {0};
    for (uint64_t until = NOW + PATIENCE; status.acknowledged < 5;) {
        CHECK(NOW < until);
        CHECK(ringway_lwep_poll(client, NOW, &event) == 0 && ringway_lwep_poll(server, NOW, &event) == 0);
        CHECK(ringway_lwep_get_status(client, connection, &status, sizeof status) == 0);
    }
    CHECK(ringway_lwep_resume(server, there) == 0);
    ringway_lwep_buffer buffers[6];
    for (int number = 0; number < 6; number++) {
        if (number == 5)
            CHECK(ringway_lwep_send(client, connection, "\5", 1, NOW) == 1);
        event = await(server, RINGWAY_LWEP_MESSAGE);
        CHECK(ringway_lwep_keep(server, &buffers[number]) == 1);
        CHECK(ringway_lwep_keep(server, &buffers[number]) == 0);
        /* Without a copy, if it had to wait or not. A packet socket receives into memory of the kernel. */
        CHECK(!are_ports || buffers[number].data == event.data);
    }
    for (int number = 0; number < 6; number++) {
        CHECK(buffers[number].length == 1 && buffers[number].data[0] == number);
        CHECK(ringway_lwep_discard(server, buffers[number].handle) == RINGWAY_E_ARGUMENT);
        CHECK(ringway_lwep_commit(server, there, buffers[number].handle, 1, NOW) == RINGWAY_E_ARGUMENT);
        if (number % 2 == 0) {
            CHECK(ringway_lwep_give_back(server, buffers[number].handle) == 0);
            CHECK(ringway_lwep_give_back(server, buffers[number].handle) == RINGWAY_E_ARGUMENT);
        }
    }
    /* The others are freed with the endpoint. */
    end();
}

static void long_messages(void) {
    enum { LENGTH = 200000 };
    static uint8_t message[LENGTH + 1];
    for (size_t at = 0; at < sizeof message; at++)
        message[at] = (uint8_t)(at % 251);
    begin(LENGTH);
    CHECK(ringway_lwep_send_long(client, connection, message, LENGTH, NOW) == RINGWAY_E_LENGTH);
    await(client, RINGWAY_LWEP_CONNECTED);
    CHECK(ringway_lwep_send_long(client, connection, message, sizeof message, NOW) == RINGWAY_E_LENGTH);
    CHECK(ringway_lwep_send(client, connection, message, LENGTH, NOW) == RINGWAY_E_LENGTH);
    CHECK(ringway_lwep_send_long(client, connection, message, LENGTH, NOW) == 1);
    ringway_lwep_event event = await(server, RINGWAY_LWEP_MESSAGE);
    CHECK(event.length == LENGTH && memcmp(event.data, message, LENGTH) == 0);
    ringway_lwep_buffer buffer;
    CHECK(ringway_lwep_keep(server, &buffer) == 1 && buffer.length == LENGTH && memcmp(buffer.data, message, LENGTH) == 0);
    CHECK(ringway_lwep_give_back(server, buffer.handle) == 0);
    /* One buffer becomes many messages. */
    CHECK(ringway_lwep_reserve_many(client, &buffer) == 1 && buffer.length > 1000);
    memcpy(buffer.data, message, 1000);
    CHECK(ringway_lwep_commit_many(client, connection, buffer.handle, 1000, 0, NOW) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_commit_many(client, connection, buffer.handle, 1000, 300, NOW) == 1);
    for (size_t at = 0; at < 1000; at += event.length) {
        event = await(server, RINGWAY_LWEP_MESSAGE);
        CHECK(event.length == (at < 900 ? 300 : 100) && memcmp(event.data, message + at, event.length) == 0);
    }
    end();
}

static void event_loop(void) {
    begin(0);
    await(server, RINGWAY_LWEP_ACCEPTED);
    CHECK(ringway_lwep_send(client, connection, "hello", 5, NOW) == 1 && ringway_lwep_flush(client) == 0);
    ringway_lwep_event event = {0};
    uint64_t until = NOW + PATIENCE;
    while (ringway_lwep_poll(server, NOW, &event) == 0) {
        CHECK(NOW < until);
        if (ringway_lwep_prepare_sleep(server, NOW) == 1) {
            struct pollfd waited = {ringway_lwep_fd(server), POLLIN, 0};
            uint64_t deadline = ringway_lwep_next_deadline(server), now = NOW;
            int longest = deadline <= now ? 0 : deadline - now > 1000000000 ? 1000 : (int)((deadline - now) / 1000000) + 1;
            CHECK(poll(&waited, 1, longest) >= 0);
            CHECK(ringway_lwep_awake(server) == 0);
        }
    }
    CHECK(event.kind == RINGWAY_LWEP_MESSAGE && event.length == 5);
    end();
}

/* Refused peers and ends without order. */
static void ends(void) {
    begin(0);
    uint8_t mac[6];
    CHECK(ringway_lwep_mac(server, mac) == 0);
    uint32_t other;
    CHECK(ringway_lwep_connect(client, mac, SERVICE + 1, NOW, &other) == 0 && other != connection);
    ringway_lwep_event event = await(client, RINGWAY_LWEP_ENDED);
    CHECK(event.connection == other && event.reason == RINGWAY_LWEP_NOBODY_LISTENS);
    CHECK(ringway_lwep_abort(client, connection, NOW) == 0);
    event = await(client, RINGWAY_LWEP_ENDED);
    CHECK(event.connection == connection && event.reason == RINGWAY_LWEP_ABORTED);
    CHECK(ringway_lwep_abort(client, connection, NOW) == RINGWAY_E_OVER);
    /* Agreed elsewhere. */
    uint8_t own[6];
    uint32_t here, there;
    CHECK(ringway_lwep_mac(client, own) == 0);
    CHECK(ringway_lwep_agree(client, mac, 0x123456789, NOW, &here) == 0);
    CHECK(ringway_lwep_agree(client, mac, 0x123456789, NOW, &here) == RINGWAY_E_CONNECTIONS);
    CHECK(ringway_lwep_agree(server, own, 0x123456789, NOW, &there) == 0);
    CHECK(ringway_lwep_send(client, here, "hello", 5, NOW) == 1);
    event = await(server, RINGWAY_LWEP_MESSAGE);
    CHECK(event.connection == there && event.length == 5);
    CHECK(ringway_lwep_ignore(server, SERVICE) == 0 && ringway_lwep_ignore(server, SERVICE) == 0);
    CHECK(ringway_lwep_ended(client, NULL, 0) == 0);
    end();
}

static void errors(void) {
    begin(0);
    char text[256] = "";
    ringway_lwep *none = client;
    uint8_t mac[6] = {2, 0, 0, 0, 0, 2};
    uint32_t number = 0;
    ringway_lwep_event event;
    ringway_lwep_buffer buffer;
    ringway_lwep_status status;
    ringway_lwep_counters counters;
    CHECK(ringway_lwep_attach(attach_socket, NULL, NULL, &none, text, sizeof text) == RINGWAY_E_ARGUMENT && none == NULL);
    CHECK(ringway_lwep_attach(attach_socket, "x", NULL, &none, text, sizeof text) == RINGWAY_E_NAME && text[0] != 0);
    CHECK(ringway_lwep_attach(attach_socket, "lan0:x", NULL, NULL, text, sizeof text) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_attach("/nonexistent", "lan0:x", NULL, &none, NULL, 0) == RINGWAY_E_UNREACHABLE);
    ringway_lwep_options options = {0};
    CHECK(ringway_lwep_attach(attach_socket, "lan0:x", &options, &none, text, sizeof text) == RINGWAY_E_SHAPE);
    CHECK(strstr(text, "RINGWAY_LWEP_OPTIONS_INIT") != NULL);
    options.size = sizeof options;
    options.window = 7;
    CHECK(ringway_lwep_attach(attach_socket, "lan0:x", &options, &none, text, sizeof text) == RINGWAY_E_SHAPE);
    CHECK(strstr(text, "window 7") != NULL);
    struct {
        ringway_lwep_options options;
        uint64_t later;
    } longer = {RINGWAY_LWEP_OPTIONS_INIT, 1};
    longer.options.size = sizeof longer;
    CHECK(ringway_lwep_attach(attach_socket, "lan0:x", &longer.options, &none, text, sizeof text) == RINGWAY_E_SHAPE);

    CHECK(ringway_lwep_mac(NULL, mac) == RINGWAY_E_ARGUMENT && ringway_lwep_mac(client, NULL) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_message(NULL) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_listen(NULL, 1) == RINGWAY_E_ARGUMENT && ringway_lwep_ignore(NULL, 1) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_connect(NULL, mac, 1, NOW, &number) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_connect(client, NULL, 1, NOW, &number) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_connect(client, mac, 1, NOW, NULL) == RINGWAY_E_ARGUMENT);
    mac[0] = 1;
    CHECK(ringway_lwep_connect(client, mac, 1, NOW, &number) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_agree(NULL, mac, 1, NOW, &number) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_poll(NULL, NOW, &event) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_poll(client, NOW, NULL) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_drain(NULL, NOW, 1, hear, NULL) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_drain(client, NOW, 1, NULL, NULL) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_send(NULL, 0, "x", 1, NOW) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_send(client, connection, NULL, 1, NOW) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_send(client, connection, "x", (size_t)-1, NOW) == RINGWAY_E_LENGTH);
    CHECK(ringway_lwep_send(client, connection + 12345, "x", 1, NOW) == RINGWAY_E_OVER);
    CHECK(ringway_lwep_send_long(NULL, 0, "x", 1, NOW) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_send_long(client, connection + 12345, "x", 1, NOW) == RINGWAY_E_OVER);
    CHECK(ringway_lwep_send_batch(NULL, 0, NULL, 1, NOW) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_send_batch(client, connection, NULL, 1, NOW) == RINGWAY_E_ARGUMENT);
    ringway_frame frames[2] = {{"x", 1}, {NULL, 1}};
    CHECK(ringway_lwep_send_batch(client, connection, frames, 2, NOW) == 1);
    CHECK(ringway_lwep_send_batch(client, connection, frames + 1, 1, NOW) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_send_batch(client, connection + 12345, frames, 1, NOW) == RINGWAY_E_OVER);
    CHECK(ringway_lwep_reserve(NULL, &buffer) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_reserve(client, NULL) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_reserve_many(client, NULL) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_reserve(client, &buffer) == 1);
    CHECK(ringway_lwep_commit(NULL, connection, buffer.handle, 1, NOW) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_commit(client, connection, 0, 1, NOW) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_commit(client, connection, buffer.handle + 1, 1, NOW) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_commit(client, connection, buffer.handle, buffer.length + 1, NOW) == RINGWAY_E_LENGTH);
    CHECK(ringway_lwep_commit(client, connection + 12345, buffer.handle, 1, NOW) == RINGWAY_E_OVER);
    CHECK(ringway_lwep_commit_many(client, connection, buffer.handle, 0, 1, NOW) == RINGWAY_E_ARGUMENT);
    /* Another endpoint's. */
    ringway_lwep_buffer servers;
    CHECK(ringway_lwep_reserve(server, &servers) == 1 && servers.handle != buffer.handle);
    CHECK(ringway_lwep_commit(client, connection, servers.handle, 1, NOW) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_discard(client, servers.handle) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_discard(server, servers.handle) == 0);
    CHECK(ringway_lwep_give_back(client, buffer.handle) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_discard(NULL, buffer.handle) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_discard(client, buffer.handle) == 0);
    CHECK(ringway_lwep_discard(client, buffer.handle) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_commit(client, connection, buffer.handle, 1, NOW) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_keep(NULL, &buffer) == RINGWAY_E_ARGUMENT && ringway_lwep_keep(client, NULL) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_keep(client, &buffer) == 0 && ringway_lwep_give_back(NULL, 1) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_pause(NULL, 0) == RINGWAY_E_ARGUMENT && ringway_lwep_resume(NULL, 0) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_pause(client, connection + 12345) == RINGWAY_E_OVER);
    CHECK(ringway_lwep_resume(client, connection + 12345) == RINGWAY_E_OVER);
    CHECK(ringway_lwep_close(NULL, 0, NOW) == RINGWAY_E_ARGUMENT && ringway_lwep_abort(NULL, 0, NOW) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_close(client, connection + 12345, NOW) == RINGWAY_E_OVER);
    CHECK(ringway_lwep_flush(NULL) == RINGWAY_E_ARGUMENT && ringway_lwep_sleep(NULL, NOW, 0) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_prepare_sleep(NULL, NOW) == RINGWAY_E_ARGUMENT && ringway_lwep_awake(NULL) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_fd(NULL) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_next_deadline(NULL) == UINT64_MAX && ringway_lwep_ended(NULL, NULL, 0) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_get_status(NULL, 0, &status, sizeof status) == RINGWAY_E_ARGUMENT);
    CHECK(ringway_lwep_get_status(client, connection + 12345, &status, sizeof status) == RINGWAY_E_OVER);
    CHECK(ringway_lwep_get_counters(client, NULL, 0) == RINGWAY_E_ARGUMENT);
    /* Of an earlier version, and of a later one. */
    memset(&counters, 0xff, sizeof counters);
    CHECK(ringway_lwep_get_counters(client, &counters, 8) == 1 && counters.messages_received == UINT64_MAX);
    struct {
        ringway_lwep_counters counters;
        uint64_t later;
    } more = {.later = 1};
    CHECK(ringway_lwep_get_counters(client, &more.counters, sizeof more) == 1 && more.later == 0);
    ringway_lwep_free(NULL);
    end();
}

/* Names of links that cannot be opened, with what would be right. */
static void refused(const char *name, uint8_t address, int code, const char *said) {
    ringway_lwep_options options = RINGWAY_LWEP_OPTIONS_INIT;
    options.address[0] = options.address[3] = address;
    ringway_lwep *none = client;
    char text[256] = "";
    int result = ringway_lwep_attach("/nonexistent", name, &options, &none, text, sizeof text);
    if (result != code || none != NULL || strstr(text, said) == NULL) {
        fprintf(stderr, "%s: %d, not %d: %s\n", name, result, code, text);
        exit(1);
    }
}

static void names(void) {
    refused("dev:", 0, RINGWAY_E_NAME, "dev:INTERFACE");
    refused("xdp:x0/first", 0, RINGWAY_E_NAME, "write xdp:x0/0");
    refused("lan0:x/y", 0, RINGWAY_E_NAME, "give SWITCH:PORT");
    refused("lan0:x", 0, RINGWAY_E_UNREACHABLE, "port \"lan0:x\": no switch at /nonexistent");
    refused("dev:none", 0, RINGWAY_E_INTERFACE, "none of this name (ip -br link)");
    refused("dev:x0", 10, RINGWAY_E_SHAPE, "use 65549 or more");
    refused("pci:0000:ff:1f.7", 0, RINGWAY_E_INTERFACE, "0000:ff:1f.7");
}

/* Tells why the link has ended. */
static void ended(void) {
    ringway_lwep *lwep = attach(are_ports ? "lan0:a" : client_name, 1, 0);
    ringway_lwep_event event;
    char text[256] = "";
    int slept;
    puts("waiting");
    fflush(stdout);
    do
        CHECK(ringway_lwep_poll(lwep, NOW, &event) == 0);
    while ((slept = ringway_lwep_sleep(lwep, NOW, -1)) == 0);
    CHECK(ringway_lwep_awake(lwep) == RINGWAY_E_ENDED);
    CHECK(slept == RINGWAY_E_ENDED && ringway_lwep_ended(lwep, text, sizeof text) == 1);
    puts(text);
    ringway_lwep_free(lwep);
}

static int run(const char *name) {
    static const struct {
        const char *name;
        void (*run)(void);
    } scenes[] = {{"echo", echo},   {"pipeline", pipeline},     {"kept", kept},   {"long", long_messages},
                  {"ends", ends},   {"event-loop", event_loop}, {"errors", errors}, {"ended", ended},
                  {"names", names}};
    for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++) {
        if (strcmp(scenes[i].name, name) == 0) {
            scenes[i].run();
            return 0;
        }
    }
    fprintf(stderr, "no scene %s\n", name);
    return 2;
}

int main(int count, char **arguments) {
    CHECK(count == 3 || count == 5);
    if (count == 5) {
        client_name = arguments[3];
        server_name = arguments[4];
        are_ports = 0;
    }
    char *sockets, *scenes, *scene = strtok_r(arguments[2], ",", &scenes);
    attach_socket = strtok_r(arguments[1], ",", &sockets);
    for (int status = 0; scene != NULL; scene = strtok_r(NULL, ",", &scenes), attach_socket = strtok_r(NULL, ",", &sockets))
        if ((status = run(scene)) != 0)
            return status;
    return 0;
}
