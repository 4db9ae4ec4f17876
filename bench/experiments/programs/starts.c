/* Starts a program that does nothing, itself with an argument, again and again: starts. With the libraries of `ringway exec`, it is a
 * program that has them and uses no port. */
#define _GNU_SOURCE
#include <spawn.h>
#include <sys/wait.h>

#include "port.h"
#include "turns.h"

static char *program;

static uint64_t starts(uint64_t end) {
    char *words[] = {program, "child", NULL};
    uint64_t count = 0;
    do {
        pid_t child;
        int status;
        CHECK(posix_spawn(&child, program, NULL, NULL, words, environ) == 0);
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        count++;
    } while (clock_ns() < end);
    return count;
}

int main(int count, char **words) {
    if (count > 1)
        return 0;
    program = words[0];
    serve(starts, 8);
}
