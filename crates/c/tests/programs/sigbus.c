/* A program with a handler of its own for SIGBUS, which then opens a port: sigbus SOCKET WAY. WAY is "siginfo" or "plain" (how the
 * handler is installed), or "default" (there is none). The program touches its own mapping of a truncated file. */
#define _GNU_SOURCE
#include <ringway.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static sigjmp_buf back;
static volatile sig_atomic_t calls;
static char *volatile page;

static void plain(int signal) {
    calls += signal == SIGBUS;
    siglongjmp(back, 1);
}

static void siginfo(int signal, siginfo_t *info, void *context) {
    calls += signal == SIGBUS && info->si_addr == page && context != NULL;
    siglongjmp(back, 1);
}

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    if (strcmp(arguments[2], "siginfo") == 0) {
        action.sa_sigaction = siginfo;
        action.sa_flags = SA_SIGINFO;
    } else if (strcmp(arguments[2], "plain") == 0) {
        action.sa_handler = plain;
    } else {
        action.sa_handler = SIG_DFL;
    }
    sigaction(SIGBUS, &action, NULL);

    ringway_port *port;
    char text[256];
    if (ringway_attach(arguments[1], "lan0:a", NULL, &port, text, sizeof text) != 0) {
        fprintf(stderr, "%s\n", text);
        return 1;
    }
    int file = memfd_create("own", 0);
    if (file < 0 || ftruncate(file, 4096) != 0)
        return 1;
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED || ftruncate(file, 0) != 0)
        return 1;
    /* Twice: the mask is as before when the handler has left. */
    for (int turn = 1; turn <= 2; turn++) {
        if (sigsetjmp(back, 1) == 0)
            *page = 1;
        if (calls != turn)
            return 1;
    }
    ringway_detach(port);
    puts("called");
    return 0;
}
