/* A libpcap program that uses the interface as programs do: probe MODE DEVICE [ARGUMENT]. It says "open" when its device is open. */
#define _GNU_SOURCE
#include <pcap/pcap.h>
#include <dirent.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__x86_64__)
#define RESULT(context) ((context)->uc_mcontext.gregs[REG_RAX])
#elif defined(__aarch64__)
#define RESULT(context) ((context)->uc_mcontext.regs[0])
#endif

static pcap_t *p;
static char errbuf[PCAP_ERRBUF_SIZE];

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            printf("line %d: %s: %s\n", __LINE__, #condition, p ? pcap_geterr(p) : errbuf); \
            exit(1); \
        } \
    } while (0)

/* Sleeps of more than a second, of the library's or of this program's, that nothing has ended. */
static _Atomic int slept_in_vain;

/* The library calls this one. */
int epoll_wait(int set, struct epoll_event *events, int most, int timeout)
{
    int found = epoll_pwait(set, events, most, timeout, NULL);
    if (found == 0 && timeout > 1000)
        slept_in_vain++;
    return found;
}

static pcap_t *open_device(const char *name, int timeout)
{
    pcap_t *opened = pcap_create(name, errbuf);
    if (opened == NULL)
        return NULL;
    pcap_set_snaplen(opened, 100);
    pcap_set_promisc(opened, 1);
    pcap_set_timeout(opened, timeout);
    pcap_set_immediate_mode(opened, 1);
    if (pcap_activate(opened) != 0) {
        strcpy(errbuf, pcap_geterr(opened));
        pcap_close(opened);
        return NULL;
    }
    return opened;
}

static void say_open(void)
{
    puts("open");
    fflush(stdout);
}

static void count(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
    (void)data;
    CHECK(header->caplen <= 100 && header->len >= header->caplen);
    ++*(int *)user;
}

/* Sends frames: 60 bytes, the number in byte 14. */
static void inject(int frames)
{
    u_char frame[60] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 0xc, 0x88, 0xb5};
    for (int number = 0; number < frames; number++) {
        frame[14] = (u_char)number;
        if (number % 2)
            CHECK(pcap_sendpacket(p, frame, sizeof frame) == 0);
        else
            CHECK(pcap_inject(p, frame, sizeof frame) == (int)sizeof frame);
    }
}

/* Waits by the descriptor alone, and takes one frame each time: those left in the ring keep it readable. */
static void wait_one_by_one(const char *how, int frames)
{
    int descriptor = pcap_get_selectable_fd(p), seen = 0, epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(descriptor >= 0 && pcap_get_required_select_timeout(p) == NULL);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) == 0);
    CHECK(pcap_setnonblock(p, 1, errbuf) == 0 && pcap_getnonblock(p, errbuf) == 1);
    CHECK(pcap_dispatch(p, 1, count, (u_char *)&seen) == 0);
    say_open();
    while (seen < frames) {
        int ready;
        if (how[0] == 'p') {
            struct pollfd wanted = {.fd = descriptor, .events = POLLIN};
            ready = poll(&wanted, 1, 300000);
        } else if (how[0] == 'e') {
            ready = epoll_wait(epoll, &event, 1, 300000);
        } else {
            struct timeval longest = {300, 0};
            fd_set wanted;
            FD_ZERO(&wanted);
            FD_SET(descriptor, &wanted);
            ready = select(descriptor + 1, &wanted, NULL, NULL, &longest);
        }
        CHECK(ready == 1);
        if (seen % 2) {
            struct pcap_pkthdr *header;
            const u_char *data;
            int got = pcap_next_ex(p, &header, &data);
            CHECK(got == 0 || got == 1);
            if (got)
                count((u_char *)&seen, header, data);
        } else {
            CHECK(pcap_dispatch(p, 1, count, (u_char *)&seen) <= 1);
        }
    }
    /* A wake-up for a frame that was read already may come late, once. */
    struct pollfd wanted = {.fd = descriptor, .events = POLLIN};
    for (int late = 0; poll(&wanted, 1, 100) != 0; late++)
        CHECK(late < 5 && pcap_dispatch(p, -1, count, (u_char *)&seen) == 0);
    printf("%d by %s\n", seen, how);
}

static void on_signal(int number)
{
    (void)number;
    pcap_breakloop(p);
}

static void *break_later(void *nothing)
{
    usleep(100000);
    pcap_breakloop(p);
    return nothing;
}

static void break_loops(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct itimerval timer = {.it_value = {.tv_usec = 100000}};
    struct pcap_pkthdr *header;
    const u_char *data;
    pthread_t thread;
    int seen = 0;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
    CHECK(pcap_loop(p, -1, count, (u_char *)&seen) == PCAP_ERROR_BREAK);
    pthread_create(&thread, NULL, break_later, NULL);
    CHECK(pcap_loop(p, -1, count, (u_char *)&seen) == PCAP_ERROR_BREAK);
    pthread_join(thread, NULL);
    pcap_breakloop(p);
    CHECK(pcap_next_ex(p, &header, &data) == PCAP_ERROR_BREAK);
    /* A request ends one loop only. */
    CHECK(pcap_setnonblock(p, 1, errbuf) == 0 && pcap_dispatch(p, -1, count, (u_char *)&seen) == 0);
    puts("broken three times");
}

/* The descriptor tells of frames that come after a loop or a read was broken. */
static void wait_after_break(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct itimerval timer = {.it_value = {.tv_usec = 100000}};
    struct pollfd wanted = {.fd = pcap_get_selectable_fd(p), .events = POLLIN};
    struct pcap_pkthdr *header;
    const u_char *data;
    sigaction(SIGALRM, &action, NULL);
    for (int round = 0; round < 2; round++) {
        int seen = 0;
        setitimer(ITIMER_REAL, &timer, NULL);
        if (round == 0)
            CHECK(pcap_loop(p, -1, count, (u_char *)&seen) == PCAP_ERROR_BREAK && seen == 0);
        else
            CHECK(pcap_next_ex(p, &header, &data) == PCAP_ERROR_BREAK);
        say_open();
        CHECK(poll(&wanted, 1, 300000) == 1);
        CHECK(pcap_dispatch(p, 1, count, (u_char *)&seen) == 1);
    }
    puts("told twice");
}

static void break_in_callback(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
    count(user, header, data);
    pcap_breakloop(p);
}

/* The callback's request ends the loop after its frame. The frames behind it stay. */
static void break_by_callback(int frames)
{
    int seen = 0;
    say_open();
    CHECK(pcap_loop(p, -1, break_in_callback, (u_char *)&seen) == PCAP_ERROR_BREAK && seen == 1);
    CHECK(pcap_loop(p, frames - 1, count, (u_char *)&seen) == 0);
    printf("%d seen\n", seen);
}

/* Answers each frame from the callback, while the frame is in the ring. */
static void answer(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
    u_char reply[100];
    memcpy(reply, data, header->caplen);
    memcpy(reply, data + 6, 6);
    reply[6] = 2, reply[11] = 0xc;
    CHECK(pcap_inject(p, reply, header->caplen) == (int)header->caplen);
    ++*(int *)user;
}

static void timeouts(void)
{
    struct pcap_pkthdr header, *found;
    const u_char *data;
    int seen = 0;
    CHECK(pcap_next_ex(p, &found, &data) == 0);
    CHECK(pcap_dispatch(p, -1, count, (u_char *)&seen) == 0);
    CHECK(pcap_next(p, &header) == NULL);
    puts("nothing in time");
}

static long long in_nanoseconds(long long seconds, long nanoseconds)
{
    return seconds * 1000000000 + nanoseconds;
}

static void nanoseconds(const char *device, const char *file)
{
    struct pcap_pkthdr *header;
    const u_char *data;
    struct pcap_stat stat;
    struct timespec before, now;
    p = pcap_create(device, errbuf);
    CHECK(pcap_set_tstamp_precision(p, 7) == PCAP_ERROR_TSTAMP_PRECISION_NOTSUP);
    CHECK(pcap_set_tstamp_precision(p, PCAP_TSTAMP_PRECISION_NANO) == 0);
    CHECK(pcap_activate(p) == 0 && pcap_get_tstamp_precision(p) == PCAP_TSTAMP_PRECISION_NANO);
    pcap_dumper_t *dump = pcap_dump_open(p, file);
    CHECK(dump != NULL);
    clock_gettime(CLOCK_REALTIME, &before);
    say_open();
    for (int seen = 0; seen < 20; seen++) {
        CHECK(pcap_next_ex(p, &header, &data) == 1);
        clock_gettime(CLOCK_REALTIME, &now);
        /* Microseconds would be a time before the handle was open, but in a second's first millisecond. */
        long long time = in_nanoseconds(header->ts.tv_sec, header->ts.tv_usec);
        CHECK(in_nanoseconds(before.tv_sec, before.tv_nsec) <= time && time <= in_nanoseconds(now.tv_sec, now.tv_nsec));
        CHECK(header->ts.tv_usec < 1000000000);
        pcap_dump((u_char *)dump, header, data);
    }
    CHECK(pcap_stats(p, &stat) == 0);
    if (stat.ps_recv != 20 || stat.ps_drop != 0)
        printf("%u received, %u dropped\n", stat.ps_recv, stat.ps_drop);
    pcap_dump_close(dump);
    puts("20 in the file");
}

static void *loop(void *nothing)
{
    int seen = 0;
    pcap_loop(p, -1, count, (u_char *)&seen);
    return nothing;
}

static void *next_frames(void *nothing)
{
    struct pcap_pkthdr *header;
    const u_char *data;
    while (pcap_next_ex(p, &header, &data) >= 0)
        ;
    return nothing;
}

/* A thread that waits can be cancelled, as in libpcap. */
static void cancel(void)
{
    void *(*waits[])(void *) = {loop, next_frames};
    for (int number = 0; number < 2; number++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, waits[number], NULL);
        usleep(50000);
        CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    }
    struct pcap_stat stat;
    CHECK(pcap_stats(p, &stat) == 0);
    puts("cancelled twice");
}

/* The switch takes nothing: a sender waits for room until its signal handler breaks the wait. */
static void stuck(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    /* Again and again: a signal that comes before the wait does not break it. */
    struct itimerval timer = {.it_value = {.tv_usec = 200000}, .it_interval = {.tv_usec = 200000}}, never = {0};
    u_char frame[60] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2};
    int sent = 0;
    say_open();
    CHECK(getchar() != EOF && pcap_setnonblock(p, 1, errbuf) == 0);
    while (pcap_inject(p, frame, sizeof frame) == (int)sizeof frame)
        CHECK(++sent < 1000000);
    CHECK(strstr(pcap_geterr(p), "the ring is full") && pcap_setnonblock(p, 0, errbuf) == 0);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
    CHECK(pcap_sendpacket(p, frame, sizeof frame) == -1 && strstr(pcap_geterr(p), "pcap_breakloop"));
    setitimer(ITIMER_REAL, &never, NULL);
    /* Nobody breaks this wait: the request was made before it. */
    CHECK(pcap_sendpacket(p, frame, sizeof frame) == -1 && strstr(pcap_geterr(p), "has taken no frame for"));
    /* The next loop takes it. */
    struct pcap_pkthdr *header;
    const u_char *data;
    CHECK(pcap_next_ex(p, &header, &data) == PCAP_ERROR_BREAK);
    puts("not stuck");
}

/* The switch takes nothing, and there is room for a part of a frame. */
static void stuck_with_some_room(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct itimerval timer = {.it_value = {.tv_usec = 500000}, .it_interval = {.tv_usec = 500000}}, never = {0};
    /* Five slots of the 511. */
    static u_char frame[9000] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2};
    say_open();
    CHECK(getchar() != EOF && pcap_setnonblock(p, 1, errbuf) == 0);
    while (pcap_inject(p, frame, sizeof frame) == (int)sizeof frame)
        ;
    CHECK(strstr(pcap_geterr(p), "the ring is full") && pcap_setnonblock(p, 0, errbuf) == 0);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
    CHECK(pcap_inject(p, frame, sizeof frame) == -1 && strstr(pcap_geterr(p), "pcap_breakloop"));
    setitimer(ITIMER_REAL, &never, NULL);
    /* There was room. */
    CHECK(pcap_inject(p, frame, 60) == 60);
    puts("stuck with some room");
    fflush(stdout);
    /* To close the handle is to wait for the switch, by system calls. */
    _exit(0);
}

/* A thread that sends one frame. The send is to fail for a reason, or to succeed (NULL). */
struct sender {
    pthread_t thread;
    _Atomic int id;
    const char *wanted;
};

static void *send_one(void *argument)
{
    struct sender *sender = argument;
    u_char frame[60] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2};
    sender->id = gettid();
    CHECK(pcap_inject(p, frame, sizeof frame) == -1 && strstr(pcap_geterr(p), sender->wanted));
    return NULL;
}

/* Starts a sender, and waits until it sleeps. */
static void start_sender(struct sender *sender, const char *wanted)
{
    char path[64], stat[200];
    sender->id = 0;
    sender->wanted = wanted;
    CHECK(pthread_create(&sender->thread, NULL, send_one, sender) == 0);
    while (sender->id == 0)
        sched_yield();
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", sender->id);
    do {
        FILE *file = fopen(path, "r");
        CHECK(file && fgets(stat, sizeof stat, file));
        fclose(file);
    } while (strstr(stat, ") S ") == NULL);
}

static _Atomic int handled;

static void send_in_handler(int number)
{
    u_char frame[60] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2};
    (void)number;
    CHECK(pcap_inject(p, frame, sizeof frame) == -1 && strstr(pcap_geterr(p), "has interrupted a send"));
    handled = 1;
}

/* The switch takes nothing: one thread waits for room and another one for that thread. */
static void senders(void)
{
    struct sigaction action = {.sa_handler = send_in_handler, .sa_flags = SA_RESTART};
    u_char frame[60] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2};
    struct sender one, other;
    int status;
    say_open();
    CHECK(getchar() != EOF && pcap_setnonblock(p, 1, errbuf) == 0);
    while (pcap_inject(p, frame, sizeof frame) == (int)sizeof frame)
        ;
    CHECK(pcap_setnonblock(p, 0, errbuf) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    start_sender(&one, "pcap_breakloop");
    /* A signal handler would wait for its own thread, and a child for a thread that it does not have. */
    CHECK(pthread_kill(one.thread, SIGUSR1) == 0);
    while (!handled)
        sched_yield();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(pcap_inject(p, frame, sizeof frame) == -1 && strstr(pcap_geterr(p), "when it forked"));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    /* A request to break ends both waits. */
    start_sender(&other, "pcap_breakloop");
    pcap_breakloop(p);
    CHECK(pthread_join(one.thread, NULL) == 0 && pthread_join(other.thread, NULL) == 0);
    /* So does the end of blocking. */
    start_sender(&one, "the ring is full");
    start_sender(&other, "the ring is full");
    CHECK(pcap_setnonblock(p, 1, errbuf) == 0);
    CHECK(pcap_inject(p, frame, sizeof frame) == -1 && strstr(pcap_geterr(p), "the ring is full"));
    CHECK(pthread_join(one.thread, NULL) == 0 && pthread_join(other.thread, NULL) == 0);
    /* A sender that nothing wakes would look again after five seconds. */
    CHECK(!slept_in_vain);
    puts("no sender is left");
    fflush(stdout);
    /* To close the handle is to wait for the switch. */
    _exit(0);
}

static _Atomic int kicks, is_let_go;

/* In the middle of a send, in place of its kick: the thread stands still until it is let go. */
static void stand_still(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    RESULT((ucontext_t *)context) = 8;
    kicks++;
    while (!is_let_go)
        sched_yield();
}

/* Sends single frames to a switch that sleeps in between, until a send kicks it. A filter of system calls raises a signal for the kick. */
static void *send_until_a_kick(void *nothing)
{
    u_char frame[60] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2};
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 2 * 8),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 8, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
    struct sigaction action = {.sa_sigaction = stand_still, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSYS, &action, NULL) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
    for (int number = 0; kicks == 0; usleep(20000)) {
        CHECK(pcap_inject(p, frame, sizeof frame) == (int)sizeof frame);
        CHECK(++number < 1000);
    }
    return nothing;
}

/* A thread stands still in the middle of its send. */
static void held(void)
{
    struct sender other;
    pthread_t holder;
    u_char frame[60] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2};
    CHECK(pthread_create(&holder, NULL, send_until_a_kick, NULL) == 0);
    while (kicks == 0)
        sched_yield();
    /* A request to break ends the wait for it. */
    start_sender(&other, "pcap_breakloop");
    pcap_breakloop(p);
    CHECK(pthread_join(other.thread, NULL) == 0);
    /* A sender that does not block waits for it, too, but not for long. */
    CHECK(pcap_setnonblock(p, 1, errbuf) == 0);
    CHECK(pcap_inject(p, frame, sizeof frame) == -1 && strstr(pcap_geterr(p), "does not end"));
    is_let_go = 1;
    CHECK(pthread_join(holder, NULL) == 0);
    CHECK(pcap_inject(p, frame, sizeof frame) == (int)sizeof frame);
    puts("held and let go");
}

/* The port ends: a child, the receiving and the sending side are told why. */
static void told_of_the_end(const char *why)
{
    static u_char frame[60] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2};
    struct pcap_pkthdr *header;
    const u_char *data;
    int status, is_told[2];
    CHECK(pipe(is_told) == 0);
    say_open();
    pid_t early = fork(), late = early == 0 ? 0 : fork();
    CHECK(early >= 0 && late >= 0);
    if (early == 0 || late == 0) {
        /* The late one asks after its parent was told. */
        if (early != 0)
            CHECK(close(is_told[1]) == 0 && read(is_told[0], errbuf, 1) == 0);
        CHECK(pcap_next_ex(p, &header, &data) == PCAP_ERROR && strstr(pcap_geterr(p), why));
        _exit(0);
    }
    CHECK(waitpid(early, &status, 0) == early && status == 0);
    for (int times = 0; times < 2; times++)
        CHECK(pcap_next_ex(p, &header, &data) == PCAP_ERROR && strstr(pcap_geterr(p), why));
    CHECK(close(is_told[1]) == 0 && waitpid(late, &status, 0) == late && status == 0);
    while (pcap_inject(p, frame, sizeof frame) == (int)sizeof frame)
        ;
    CHECK(strstr(pcap_geterr(p), "send: ") && strstr(pcap_geterr(p), why));
    puts("all told");
}

/* Drops what there is no room for, as a bridge does. */
static void drop(int frames)
{
    u_char frame[60] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2};
    say_open();
    CHECK(getchar() != EOF && pcap_setnonblock(p, 1, errbuf) == 0);
    for (int dropped = 0; dropped < frames;) {
        if (pcap_inject(p, frame, sizeof frame) == (int)sizeof frame)
            continue;
        CHECK(strstr(pcap_geterr(p), "the ring is full"));
        dropped++;
    }
    printf("%d dropped\n", frames);
    fflush(stdout);
    /* To close the handle is to wait for the switch, by system calls. */
    _exit(0);
}

/* Takes what is in the ring one by one, while the descriptor is in use. */
static void take(int frames)
{
    CHECK(pcap_setnonblock(p, 1, errbuf) == 0 && pcap_get_selectable_fd(p) >= 0);
    say_open();
    CHECK(getchar() != EOF);
    struct pcap_pkthdr *header;
    const u_char *data;
    for (int frame = 0; frame < frames; frame++)
        CHECK(pcap_next_ex(p, &header, &data) == 1);
    printf("%d taken\n", frames);
}

/* As a program becomes a service: its child goes on with the open handle. */
static void in_child(int frames)
{
    int seen = 0;
    if (fork() != 0)
        _exit(0);
    say_open();
    CHECK(pcap_loop(p, frames, count, (u_char *)&seen) == 0 && seen == frames);
    printf("%d in the child\n", seen);
}

/* Both directions at once on one handle: frames have their number at byte 14 and, from the program, the number of frames that it has
 * received at byte 18. */
static struct both_ways {
    int frames;
    const char *how;
    _Atomic int received;
    _Atomic int is_over;
} both;

static void in_order(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
    int number;
    (void)user;
    memcpy(&number, data + 14, 4);
    if (header->len != 60 || number != both.received)
        printf("%d received, not %d\n", number, both.received), exit(1);
    both.received++;
}

static void *receive_all(void *nothing)
{
    struct pollfd wanted = {.fd = both.how[0] == 'p' ? pcap_get_selectable_fd(p) : -1, .events = POLLIN};
    struct pcap_pkthdr *header;
    const u_char *data;
    while (both.received < both.frames) {
        if (both.how[0] == 'l') {
            CHECK(pcap_loop(p, both.frames / 4, in_order, NULL) == 0);
        } else if (both.how[0] == 'n') {
            CHECK(pcap_next_ex(p, &header, &data) == 1);
            in_order(NULL, header, data);
        } else {
            CHECK(poll(&wanted, 1, -1) == 1 && pcap_dispatch(p, -1, in_order, NULL) >= 0);
        }
    }
    both.is_over = 1;
    return nothing;
}

static void both_ways(const char *how, int frames)
{
    u_char frame[60] = {2, 0, 0, 0, 0, 0xa, 2, 0, 0, 0, 0, 0xc, 0x88, 0xb5};
    struct pcap_stat stat;
    pthread_t thread;
    int sent = 0;
    both.frames = frames, both.how = how;
    say_open();
    CHECK(getchar() != EOF && pthread_create(&thread, NULL, receive_all, NULL) == 0);
    for (; sent < frames || !both.is_over; sent++) {
        int received = both.received;
        memcpy(frame + 14, &sent, 4);
        memcpy(frame + 18, &received, 4);
        if (sent % 2)
            CHECK(pcap_sendpacket(p, frame, sizeof frame) == 0);
        else
            CHECK(pcap_inject(p, frame, sizeof frame) == (int)sizeof frame);
        /* A sender that nothing wakes would look again after five seconds. */
        CHECK(!slept_in_vain);
    }
    CHECK(pthread_join(thread, NULL) == 0 && pcap_stats(p, &stat) == 0);
    CHECK(stat.ps_recv == (u_int)frames && stat.ps_drop == 0);
    printf("%d sent\n", sent);
}

static void *break_until_over(void *over)
{
    while (!*(_Atomic int *)over) {
        usleep(20000);
        pcap_breakloop(p);
    }
    return NULL;
}

static void *loop_until_broken(void *nothing)
{
    int seen = 0;
    CHECK(pcap_loop(p, -1, count, (u_char *)&seen) == PCAP_ERROR_BREAK && seen == 0);
    return nothing;
}

/* One thread waits for frames and another one for room: both are told to end. */
static void break_both(void)
{
    u_char frame[60] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2};
    _Atomic int over = 0;
    pthread_t receiver, breaker;
    say_open();
    CHECK(getchar() != EOF && pcap_setnonblock(p, 1, errbuf) == 0);
    while (pcap_inject(p, frame, sizeof frame) == (int)sizeof frame)
        ;
    CHECK(pcap_setnonblock(p, 0, errbuf) == 0 && pthread_create(&receiver, NULL, loop_until_broken, NULL) == 0);
    CHECK(pthread_create(&breaker, NULL, break_until_over, &over) == 0);
    CHECK(pcap_inject(p, frame, sizeof frame) == -1 && strstr(pcap_geterr(p), "pcap_breakloop"));
    CHECK(!slept_in_vain);
    CHECK(pthread_join(receiver, NULL) == 0);
    over = 1;
    CHECK(pthread_join(breaker, NULL) == 0);
    puts("both broken");
}

/* As tcpdump: gives root up after the device is open. */
static void count_lost_as(const char *user)
{
    struct pcap_stat stat;
    say_open();
    CHECK(getchar() != EOF && (strcmp(user, "nobody") != 0 || setuid(65534) == 0));
    CHECK(pcap_stats(p, &stat) == 0);
    printf("%u lost\n", stat.ps_drop);
}

static int descriptors(void)
{
    int number = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        number++;
    closedir(folder);
    return number;
}

static long kibibytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%*d %ld", &pages) == 1);
    fclose(file);
    return pages * 4;
}

/* Opens and closes everything over and over. */
static void over_and_over(const char *device, int times)
{
    char mirror[200];
    int before = 0;
    long memory = 0;
    snprintf(mirror, sizeof mirror, "mirror:%s", device);
    for (int number = 0; number < times; number++) {
        const char *names[] = {device, mirror, "mirror:nobody"};
        struct bpf_program program;
        pcap_if_t *list;
        CHECK(pcap_findalldevs(&list, errbuf) == 0);
        pcap_freealldevs(list);
        for (int name = 0; name < 3; name++) {
            p = pcap_open_live(names[name], 100, 1, 10, errbuf);
            CHECK((p == NULL) == (name == 2));
            if (p == NULL)
                continue;
            CHECK(pcap_get_selectable_fd(p) >= 0);
            CHECK(pcap_compile(p, &program, "arp", 1, 0) == 0 && pcap_setfilter(p, &program) == 0);
            pcap_freecode(&program);
            pcap_close(p);
        }
        /* A handle that is never activated. */
        p = pcap_create(device, errbuf);
        CHECK(p != NULL);
        pcap_close(p);
        p = NULL;
        /* Some descriptors are opened once for the process. */
        if (number == 0)
            before = descriptors();
        if (number == times / 2)
            memory = kibibytes();
    }
    CHECK(descriptors() == before);
    /* Half of the times, each with a ring of 2 MiB. */
    CHECK(kibibytes() < memory + 1024);
    puts("all closed");
}

/* Sizes and names beyond all reason. */
static void extremes(const char *device)
{
    const int values[] = {0, -1, 1, INT_MIN, INT_MAX};
    struct { char text[PCAP_ERRBUF_SIZE]; char canary[8]; } error;
    char name[1001];
    for (int number = 0; number < 5; number++) {
        int value = values[number];
        p = pcap_create(device, errbuf);
        CHECK(pcap_set_snaplen(p, value) == 0 && pcap_set_buffer_size(p, value) == 0 && pcap_set_timeout(p, value) == 0);
        CHECK(pcap_activate(p) == 0 && pcap_snapshot(p) == (value == 1 ? 1 : 262144));
        CHECK(pcap_setnonblock(p, 1, errbuf) == 0 && pcap_dispatch(p, value, count, NULL) == 0);
        pcap_close(p);
    }
    p = NULL;
    memset(name, 'a', sizeof name);
    name[1000] = 0;
    for (int number = 0; number < 5; number++) {
        const char *begins[] = {"", "lan0:", "mirror:", "mirror:lan0:", "lan0:/\n\x1b[2J"};
        memcpy(name, begins[number], strlen(begins[number]));
        memset(&error, 'x', sizeof error);
        CHECK(pcap_open_live(name, 100, 1, 10, error.text) == NULL);
        CHECK(memchr(error.text, 0, sizeof error.text) && memcmp(error.canary, "xxxxxxxx", 8) == 0);
    }
    puts("all survived");
}

static void mistakes(const char *device)
{
    struct bpf_program program, empty = {0, NULL};
    bpf_u_int32 net = 1, mask = 1;
    int *list;
    u_char frame[70000] = {0};
    p = pcap_create(device, errbuf);
    CHECK(pcap_datalink(p) == PCAP_ERROR_NOT_ACTIVATED && pcap_inject(p, frame, 60) == PCAP_ERROR_NOT_ACTIVATED);
    CHECK(pcap_dispatch(p, 1, count, NULL) == PCAP_ERROR_NOT_ACTIVATED && pcap_get_selectable_fd(p) == -1);
    CHECK(pcap_can_set_rfmon(p) == 0 && pcap_set_rfmon(p, 1) == 0 && pcap_activate(p) == PCAP_ERROR_RFMON_NOTSUP);
    CHECK(pcap_set_rfmon(p, 0) == 0 && pcap_list_tstamp_types(p, &list) == 1 && list[0] == PCAP_TSTAMP_HOST);
    pcap_free_tstamp_types(list);
    CHECK(pcap_set_tstamp_type(p, PCAP_TSTAMP_ADAPTER) == PCAP_WARNING_TSTAMP_TYPE_NOTSUP);
    CHECK(pcap_set_tstamp_type(p, -1) == PCAP_WARNING_TSTAMP_TYPE_NOTSUP && pcap_set_tstamp_type(p, PCAP_TSTAMP_HOST) == 0);
    CHECK(pcap_set_buffer_size(p, 1 << 20) == 0 && pcap_activate(p) == 0);
    CHECK(pcap_activate(p) == PCAP_ERROR_ACTIVATED && pcap_set_snaplen(p, 5) == PCAP_ERROR_ACTIVATED);
    CHECK(pcap_set_tstamp_type(p, PCAP_TSTAMP_ADAPTER) == PCAP_ERROR_ACTIVATED);
    CHECK(pcap_snapshot(p) == 262144 && pcap_datalink(p) == DLT_EN10MB && pcap_is_swapped(p) == 0 && pcap_file(p) == NULL);
    CHECK(pcap_list_datalinks(p, &list) == 1 && list[0] == DLT_EN10MB);
    pcap_free_datalinks(list);
    CHECK(pcap_set_datalink(p, DLT_EN10MB) == 0 && pcap_set_datalink(p, DLT_RAW) == -1);
    CHECK(pcap_lookupnet(device, &net, &mask, errbuf) == 0 && net == 0 && mask == 0);
    CHECK(pcap_compile(p, &program, "tcp port 70000", 1, 0) == -1 && strstr(pcap_geterr(p), "70000"));
    CHECK(pcap_setfilter(p, &empty) == -1 && pcap_setfilter(p, NULL) == -1);
    struct bpf_insn jump = {0x05, 0, 0, 1000};
    struct bpf_program wild = {1, &jump};
    CHECK(pcap_setfilter(p, &wild) == -1);
    CHECK(pcap_compile(p, &program, "vlan and ip6", 1, PCAP_NETMASK_UNKNOWN) == 0 && pcap_setfilter(p, &program) == 0);
    pcap_freecode(&program);
    CHECK(pcap_inject(p, frame, 5) == -1 && strstr(pcap_geterr(p), "14 to 65535 bytes"));
    CHECK(pcap_sendpacket(p, frame, -1) == -1 && pcap_inject(p, frame, sizeof frame) == -1 && pcap_inject(p, NULL, 60) == -1);
    CHECK(pcap_dump_open(p, "/no/such/folder") == NULL && strstr(pcap_geterr(p), "/no/such/folder"));
    CHECK(pcap_setdirection(p, PCAP_D_IN) == 0 && pcap_setdirection(p, (pcap_direction_t)9) == -1);
    char mirror[200];
    snprintf(mirror, sizeof mirror, "mirror:%s", device);
    pcap_t *own = p;
    p = pcap_open_live(mirror, 100, 1, 10, errbuf);
    CHECK(p != NULL && pcap_inject(p, frame, 60) == -1 && strstr(pcap_geterr(p), "read-only"));
    pcap_close(p);
    p = NULL;
    CHECK(pcap_open_live(device, 100, 1, 10, errbuf) == NULL && strstr(errbuf, "is in use"));
    /* Handles of libpcap's beside ours. */
    pcap_t *dead = pcap_open_dead(DLT_RAW, 77);
    CHECK(pcap_snapshot(dead) == 77 && pcap_datalink(dead) == DLT_RAW && pcap_open_offline("/no/such/file", errbuf) == NULL);
    pcap_close(dead);
    pcap_close(own);
    puts("all refused");
}

int main(int argc, char **argv)
{
    const char *mode = argv[1], *device = argv[2];
    int number = argc > 3 ? atoi(argv[3]) : 0, seen = 0;
    if (strcmp(mode, "nano") == 0) {
        nanoseconds(device, argv[3]);
    } else if (strcmp(mode, "mistakes") == 0) {
        mistakes(device);
    } else if (strcmp(mode, "over-and-over") == 0) {
        over_and_over(device, number);
    } else if (strcmp(mode, "extremes") == 0) {
        extremes(device);
    } else {
        CHECK((p = open_device(device, strcmp(mode, "timeouts") == 0 ? 20 : 0)) != NULL);
        if (strcmp(mode, "inject") == 0) {
            say_open();
            CHECK(getchar() != EOF);
            inject(number);
        } else if (strcmp(mode, "break") == 0) {
            break_loops();
        } else if (strcmp(mode, "wait-after-break") == 0) {
            wait_after_break();
        } else if (strcmp(mode, "break-in-callback") == 0) {
            break_by_callback(number);
        } else if (strcmp(mode, "timeouts") == 0) {
            timeouts();
        } else if (strcmp(mode, "cancel") == 0) {
            cancel();
        } else if (strcmp(mode, "stuck") == 0) {
            stuck();
        } else if (strcmp(mode, "stuck-with-some-room") == 0) {
            stuck_with_some_room();
        } else if (strcmp(mode, "senders") == 0) {
            senders();
        } else if (strcmp(mode, "held") == 0) {
            held();
        } else if (strcmp(mode, "told") == 0) {
            told_of_the_end(argv[3]);
        } else if (strcmp(mode, "drop") == 0) {
            drop(number);
        } else if (strcmp(mode, "take") == 0) {
            take(number);
        } else if (strcmp(mode, "in-child") == 0) {
            in_child(number);
        } else if (strcmp(mode, "both-ways") == 0) {
            both_ways(argv[4], number);
        } else if (strcmp(mode, "break-both") == 0) {
            break_both();
        } else if (strcmp(mode, "lost") == 0) {
            count_lost_as(argv[3]);
        } else if (strcmp(mode, "perror") == 0) {
            pcap_perror(p, "probe");
            puts("still here");
        } else if (strcmp(mode, "answer") == 0) {
            say_open();
            CHECK(pcap_loop(p, number, answer, (u_char *)&seen) == 0 && seen == number);
        } else {
            wait_one_by_one(mode, number);
        }
    }
    if (p)
        pcap_close(p);
    return 0;
}
