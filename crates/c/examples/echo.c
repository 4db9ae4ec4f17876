/* echo SOCKET SWITCH:PORT: sends every frame that it receives back to where it came from. Ends with the port.
 *
 *     cc -o echo echo.c $(pkg-config --cflags --libs ringway)
 */
#include <ringway.h>
#include <stdio.h>
#include <string.h>

#define BATCH 64

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "usage: echo SOCKET SWITCH:PORT\n");
        return 2;
    }
    ringway_port *port;
    char text[256];
    if (ringway_attach(arguments[1], arguments[2], NULL, &port, text, sizeof text) != 0) {
        fprintf(stderr, "echo: %s\n", text);
        return 1;
    }
    while (ringway_wait_rx(port, -1) == 1) {
        ringway_slot in[BATCH], out[BATCH];
        int received = ringway_peek(port, 0, in, BATCH);
        int room = ringway_reserve(port, 0, out, (size_t)received);
        if (room == 0) {
            ringway_wait_tx(port, 1000000000);
            continue;
        }
        /* Frames of one buffer only: the default buffer has room for 2112 bytes. */
        int frames = 0;
        for (int i = 0; i < room; i++) {
            if (in[i].length < 14 || in[i].flags != 0)
                continue;
            memcpy(out[frames].data, in[i].data + 6, 6);
            memcpy(out[frames].data + 6, in[i].data, 6);
            memcpy(out[frames].data + 12, in[i].data + 12, in[i].length - 12);
            out[frames].length = in[i].length;
            frames++;
        }
        ringway_commit(port, 0, out, (size_t)frames);
        ringway_flush(port);
        ringway_release(port, 0, (size_t)room);
    }
    ringway_ended(port, text, sizeof text);
    fprintf(stderr, "echo: %s\n", text);
    ringway_detach(port);
    return 1;
}
