/* lwep-rpc SOCKET LINK                            answers every message with the same message: an echo server.
 * lwep-rpc SOCKET LINK ADDRESS-OF-THE-SERVER      sends ten requests, waits for each answer, and prints it.
 *
 *     cc -o lwep-rpc lwep-rpc.c $(pkg-config --cflags --libs ringway)
 *
 * LINK is SWITCH:PORT, dev:INTERFACE or another link of ringway_lwep_attach(). Ports need addresses that the switch has bound to them
 * (`mac` of a port).
 */
#include <ringway.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define SERVICE 7

static int serve(ringway_lwep *lwep) {
    ringway_lwep_event event;
    ringway_lwep_listen(lwep, SERVICE);
    do {
        while (ringway_lwep_poll(lwep, ringway_lwep_now(), &event) == 1) {
            uint64_t now = ringway_lwep_now();
            /* From where it was received. A client that sends more than it takes answers loses its connection. */
            if (event.kind == RINGWAY_LWEP_MESSAGE && ringway_lwep_send(lwep, event.connection, event.data, event.length, now) != 1)
                ringway_lwep_abort(lwep, event.connection, now);
            else if (event.kind == RINGWAY_LWEP_FINISHED)
                ringway_lwep_close(lwep, event.connection, now);
        }
    } while (ringway_lwep_sleep(lwep, ringway_lwep_now(), -1) == 0);
    return 1;
}

static int ask(ringway_lwep *lwep, const uint8_t *server) {
    uint32_t connection;
    int number = 0;
    ringway_lwep_event event;
    if (ringway_lwep_connect(lwep, server, SERVICE, ringway_lwep_now(), &connection) != 0)
        return 1;
    do {
        while (ringway_lwep_poll(lwep, ringway_lwep_now(), &event) == 1) {
            if (event.kind == RINGWAY_LWEP_ENDED)
                return event.reason == RINGWAY_LWEP_CLOSED ? 0 : 1;
            if (event.kind == RINGWAY_LWEP_MESSAGE)
                printf("%.*s\n", (int)event.length, (const char *)event.data);
            if (event.kind != RINGWAY_LWEP_CONNECTED && event.kind != RINGWAY_LWEP_MESSAGE)
                continue;
            char request[32];
            snprintf(request, sizeof request, "request %d", number);
            if (number++ == 10)
                ringway_lwep_close(lwep, connection, ringway_lwep_now());
            else if (ringway_lwep_send(lwep, connection, request, strlen(request), ringway_lwep_now()) != 1)
                return 1;
        }
    } while (ringway_lwep_sleep(lwep, ringway_lwep_now(), -1) == 0);
    return 1;
}

int main(int count, char **arguments) {
    unsigned bytes[6];
    uint8_t server[6];
    if (count != 3 &&
        (count != 4 || sscanf(arguments[3], "%x:%x:%x:%x:%x:%x", bytes, bytes + 1, bytes + 2, bytes + 3, bytes + 4, bytes + 5) != 6)) {
        fprintf(stderr, "usage: lwep-rpc SOCKET LINK [ADDRESS]\n");
        return 2;
    }
    ringway_lwep *lwep;
    char text[256];
    if (ringway_lwep_attach(arguments[1], arguments[2], NULL, &lwep, text, sizeof text) != 0) {
        fprintf(stderr, "lwep-rpc: %s\n", text);
        return 1;
    }
    for (int i = 0; count == 4 && i < 6; i++)
        server[i] = (uint8_t)bytes[i];
    int status = count == 4 ? ask(lwep, server) : serve(lwep);
    if (ringway_lwep_ended(lwep, text, sizeof text) == 1)
        fprintf(stderr, "lwep-rpc: %s\n", text);
    ringway_lwep_free(lwep);
    return status;
}
